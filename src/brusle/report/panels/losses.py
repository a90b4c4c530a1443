"""The loss of a search over its queries, with what it improved marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from brusle.report.plots import plot_text
from brusle.report.style import LIGHT, Style
from brusle.tracing import Improvement, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_losses(
    axes: Axes,
    trace: Trace,
    style: Style = LIGHT,
    *,
    until: int | None = None,
    limit: int | None = None,
    what: str = "loss",
) -> None:
    """Every query as a faint dot, improvements as dots on a line that is the best so far.

    Losses of different searches (restarts, and the like) may differ in kind, so each has a line of
    its own. The axes do not depend on ``until``: the frames of a film fit together.

    Args:
        axes: to draw on.
        trace: what the search found.
        style: the colours.
        until: a query; what came after it is not drawn. None is all.
        limit: where the axis of queries ends; None is at the last query.
        what: the loss is called.
    """
    last = int(trace.queries.max(initial=1)) if until is None else until
    seen = trace.queries <= last
    axes.scatter(
        trace.queries[seen], trace.losses[seen], s=4, color=style.faint, alpha=0.35, linewidth=0
    )
    for steps in _steps(trace, last):
        queries, losses = steps
        axes.step(queries, losses, where="post", color=style.accent, linewidth=1.6)
        axes.scatter(
            queries[:-1], losses[:-1], s=16, color=style.accent, edgecolor=style.paper,
            linewidth=0.6, zorder=3,
        )  # fmt: skip
    end = max(limit or 0, int(trace.queries.max(initial=1)))
    axes.set(xlim=(0, end * 1.02), ylim=_range(trace))
    axes.set_xlabel("queries", color=style.faint, size=9)
    axes.set_ylabel(plot_text(what), color=style.faint, size=9)
    dress(axes, style)


def dress(axes: Axes, style: Style) -> None:
    """Rules, numbers and paper of a chart."""
    axes.set_facecolor(style.paper)
    axes.grid(color=style.line, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, colors=style.faint, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(style.line)


def _steps(trace: Trace, last: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """For each search, queries and losses of its improvements, and the last again at its end."""
    found = [one for one in trace.improvements if np.isfinite(one.loss)]
    searches = [list(some) for _, some in groupby(found, key=lambda one: one.search)]
    for number, some in enumerate(searches):
        following = searches[number + 1][0].query if number + 1 < len(searches) else None
        end = int(trace.queries.max(initial=0)) if following is None else following
        drawn = [one for one in some if one.query <= last]
        if drawn:
            yield _line(drawn, max(drawn[-1].query, min(end, last)))


def _line(some: Sequence[Improvement], end: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    queries = np.array([*(one.query for one in some), end])
    return queries, np.array([*(one.loss for one in some), some[-1].loss])


def _range(trace: Trace) -> tuple[float, float]:
    """From the lowest loss to the highest, with a margin."""
    losses = np.array([*trace.losses, *(one.loss for one in trace.improvements)])
    known = losses[np.isfinite(losses)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    # losses that are all the same differ in their last digits, which are not worth an axis
    margin = 0.05 * (high - low) if high - low > 1e-4 * max(1.0, abs(high)) else 0.5
    return low - margin, high + margin
