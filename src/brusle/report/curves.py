"""Success by number of queries, as a picture."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from brusle.evaluation.metrics import Rate
from brusle.evaluation.runs import Run
from brusle.evaluation.statistics import success_rate
from brusle.evaluation.store import Row

COLOURS = ("#0b6e99", "#c8553d", "#588157", "#7b4b94", "#b08900", "#3d405b")
_STYLES = ("-", "--", ":")  # for more settings than colours
_MOST_BANDS = 4  # more would cover each other


def success_steps(rows: Sequence[Row], limit: int) -> list[tuple[int, Rate]]:
    """The success rate at 0 queries, wherever it rises, and at the limit."""
    hits = sorted(row.queries for row in rows if row.status == "success")
    attacked = success_rate(rows).count
    return [(mark, Rate(bisect_right(hits, mark), attacked)) for mark in sorted({0, *hits, limit})]


def curve(run: Run, path: str | Path) -> None:
    """Draw the attack success rate of every setting against the queries spent.

    The band is the 95 % interval, where there are few curves. A curve that still rises at its
    right end says that the limit, and not the victim, has ended the attack.
    """
    # matplotlib takes half a second to import, and only this needs it
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    several = len({setting.name for setting in run.settings}) > 1
    below = 0.25 * len(run.settings) if several else 0.0  # long names go below the curves
    figure = Figure(figsize=(7, 4.2 + below), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for at, setting in enumerate(run.settings):
        steps, rates = zip(*success_steps(run.stored(setting), setting.queries), strict=True)
        colour = COLOURS[at % len(COLOURS)]
        label = f"{setting.goal}, {setting.pixels} pixels"
        if several:
            label = f"{setting.name}, {label}"
        style = _STYLES[at // len(COLOURS) % len(_STYLES)]
        heights = [100 * r.value for r in rates]
        axes.step(steps, heights, where="post", color=colour, ls=style, label=label, lw=1.8)
        if len(run.settings) > _MOST_BANDS:
            continue
        low, high = zip(*(r.interval for r in rates), strict=True)
        band = ([100 * v for v in low], [100 * v for v in high])
        axes.fill_between(steps, *band, step="post", color=colour, alpha=0.12, lw=0)
    axes.set(
        xlabel="queries per image",
        ylabel="fooled, % of correctly classified images",
        xlim=(0, None),
        ylim=(0, 100),
        title=f"{run.victim} on {run.data}",
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if several:
        figure.legend(frameon=False, loc="outside lower left")
    else:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=130)
