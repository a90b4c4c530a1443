"""Success by number of queries, and robust accuracy by number of pixels, as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from brusle.evaluation.statistics import PixelsNeeded, Rate, success_steps
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Record, Row
from brusle.report.plots import plot_text, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (
    "#0b6e99", "#c8553d", "#588157", "#7b4b94", "#b08900", "#3d405b", "#b5577f", "#2a8c82",
    "#8a5a3c", "#6b7280",
)  # fmt: skip
MOST_BANDS = 4  # more would cover each other
_STYLES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)), (0, (6, 2, 1, 2, 1, 2)), (0, (9, 4)))
_INTERVAL = "the 95 % interval"
_RANGE = "from the lowest to the highest seed"


@dataclass(frozen=True)
class Point:
    """A corner of a curve: where, how high in shares of 1, and the ends of its band."""

    at: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A setting with all its seeds.

    Attributes:
        setting: what was run, without a seed if there are several.
        points: the mean over seeds; the band is the 95 % interval of one seed, and with several
            seeds it goes from the lowest to the highest.
        seeds: how many.
    """

    setting: Record
    points: Sequence[Point]
    seeds: int

    @classmethod
    def of(cls, settings: Sequence[Record], steps: Sequence[Mapping[int, Rate]]) -> Curve:
        """The curve of settings that differ in their seed alone, and their rates."""
        if len(settings) == 1:
            points = [Point(at, rate.value, *rate.interval) for at, rate in steps[0].items()]
            return cls(settings[0], points, 1)
        return cls(replace(settings[0], seed=0), _averaged(steps), len(settings))


def attack_colours(settings: Iterable[Record]) -> dict[str, int]:
    """A number of a colour for each attack, the same in all its settings."""
    names = dict.fromkeys(setting.attack for setting in settings)
    return {name: at % len(COLOURS) for at, name in enumerate(names)}


def band_caption(curves: Sequence[Curve], bands: bool) -> str:
    """What lines and bands of ``curves`` are."""
    numbers = {curve.seeds for curve in curves}
    several = sorted(number for number in numbers if number > 1)
    seeds = f"Lines are means over {' or '.join(map(str, several))} seeds. " if several else ""
    if not bands:
        return f"{seeds}So many curves are drawn without bands."
    if numbers == {1}:
        return f"Bands are {_INTERVAL}."
    if 1 not in numbers:
        return f"{seeds}Bands go {_RANGE}."
    return f"{seeds}Their bands go {_RANGE}; the bands of single seeds are {_INTERVAL}."


def run_curves(run: Run) -> list[Curve]:
    """The curves of a run, seeds together; settings that have attacked nothing yet have none.

    They are success over queries or, of searches for the fewest pixels, robust accuracy over
    pixels.
    """
    groups: dict[tuple[object, ...], list[tuple[Record, Mapping[int, Rate]]]] = {}
    for setting in run.settings:
        steps = _steps(setting, run.stored(setting))
        if next(iter(steps.values())).count:
            groups.setdefault(setting.family, []).append((setting, steps))
    return [Curve.of(*zip(*group, strict=True)) for group in groups.values()]


def curve(run: Run, path: str | Path) -> None:
    """Draw the curves of a run, see `figure`, and write them to ``path``."""
    save_figure(figure(run), path, dpi=130)


def figure(run: Run) -> Figure:
    """Draw the attack success rate of every setting against the queries spent.

    Searches for the fewest pixels are drawn apart, as robust accuracy against pixels. An attack
    has one colour, and line styles tell goals and budgets apart. Of several seeds the mean is
    drawn. Where there are few curves, they have bands; the picture says what these are. A curve of
    success that still rises at its right end says that the limit, and not the victim, has ended
    the attack.
    """
    # matplotlib takes half a second to import, and only this needs it
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curves = run_curves(run)
    kinds = [[c for c in curves if c.setting.minimal is minimal] for minimal in (False, True)]
    kinds = [kind for kind in kinds if kind] or [[]]
    below = 0.25 * max(map(len, kinds))  # long names go below the curves
    size = (7 * len(kinds), 4.5 + below)
    drawn = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(drawn)
    colours = attack_colours(run.settings)
    several = len({curve.setting.name for curve in curves}) > 1
    for axes, kind in zip(drawn.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        _draw(axes, kind, colours, several)
    drawn.suptitle(plot_text(f"{run.victim} on {run.data}"))
    return drawn


def _draw(axes: Axes, curves: Sequence[Curve], colours: Mapping[str, int], named: bool) -> None:
    """The curves of a kind, ``named`` by their attacks or not; below, what their bands are."""
    minimal = any(curve.setting.minimal for curve in curves)
    bands = len(curves) <= MOST_BANDS
    places = list(dict.fromkeys(_place(curve.setting) for curve in curves))
    for curve in curves:
        setting = curve.setting
        style = _STYLES[places.index(_place(setting)) % len(_STYLES)]
        at, heights = [p.at for p in curve.points], [100 * p.value for p in curve.points]
        colour = COLOURS[colours[setting.attack]]
        label = _label(setting, named)
        axes.step(at, heights, where="post", color=colour, ls=style, label=label, lw=1.8)
        if bands:
            low, high = [100 * p.low for p in curve.points], [100 * p.high for p in curve.points]
            axes.fill_between(at, low, high, step="post", color=colour, alpha=0.12, lw=0)
    axes.set(
        xlabel="pixels that may be changed" if minimal else "queries per image",
        ylabel="robust accuracy, %" if minimal else "fooled, % of correctly classified images",
        xlim=(0, None),
        ylim=(0, 100),
    )
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if curves:
        axes.legend(
            frameon=False,
            loc="upper left",
            bbox_to_anchor=(-0.02, -0.12),
            title=band_caption(curves, bands),
            title_fontsize=9,
            alignment="left",
        )


def _place(setting: Record) -> tuple[object, ...]:
    return setting.goal, setting.pixels, setting.queries, setting.eot


def _label(setting: Record, named: bool) -> str:
    budget = f"at most {setting.pixels}" if setting.minimal else str(setting.pixels)
    label = f"{setting.goal}, {budget} pixels"
    return f"{plot_text(setting.name)}, {label}" if named else label


def _steps(setting: Record, rows: Sequence[Row]) -> Mapping[int, Rate]:
    if setting.minimal:
        return PixelsNeeded.of(rows, setting.pixels).robust
    return success_steps(rows, setting.queries)


def _averaged(curves: Sequence[Mapping[int, Rate]]) -> list[Point]:
    """Mean, lowest and highest of step functions, wherever one of them has a step."""
    marks = sorted({mark for steps in curves for mark in steps})
    heights = np.stack([_heights(steps, marks) for steps in curves])
    ends = heights.mean(axis=0), heights.min(axis=0), heights.max(axis=0)
    return [Point(mark, *map(float, end)) for mark, *end in zip(marks, *ends, strict=True)]


def _heights(steps: Mapping[int, Rate], marks: Sequence[int]) -> NDArray[np.float64]:
    """A step function at ``marks``, the first of which is its own first."""
    own, values = sorted(steps), np.array([steps[mark].value for mark in sorted(steps)])
    heights: NDArray[np.float64] = values[np.searchsorted(own, marks, side="right") - 1]
    return heights
