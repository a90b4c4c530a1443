"""Success over queries, and robust accuracy over pixels: what is drawn, before anybody draws it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from brusle.evaluation.record import Row, Setting
from brusle.evaluation.statistics import PixelsNeeded, Rate, success_steps
from brusle.evaluation.storing.runs import Run
from brusle.report.families import Family, families

COLOURS = (
    "#0b6e99", "#c8553d", "#4d7a46", "#7b4b94", "#9a7500", "#3d405b", "#b5577f", "#1f7a71",
    "#8a5a3c", "#6b7280",
)  # fmt: skip
MOST_BANDS = 4  # more would cover each other
_INTERVAL = "the 95 % interval"
_RANGE = "from the lowest to the highest seed"

Steps = Mapping[int, Rate]  # a step function: rates wherever it changes, and at its end


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
        name: what tells it from the other curves of its chart.
        points: the mean over seeds; the band is the 95 % interval of one seed, and with several
            seeds it goes from the lowest to the highest.
        seeds: how many.
        colour: number of its colour, the same for an attack in all charts.
        dashes: number of its dashes, which tell settings of an attack apart.
    """

    name: str
    points: Sequence[Point]
    seeds: int = 1
    colour: int = 0
    dashes: int = 0

    def at(self, mark: int) -> Point | None:
        """The step that ``mark`` is on; None beyond the end."""
        if mark > self.points[-1].at:
            return None
        return self.points[bisect_right(self.points, mark, key=lambda point: point.at) - 1]


@dataclass(frozen=True)
class Chart:
    """Curves that are drawn together.

    Attributes:
        heading: goal and, of attacks with a pixel budget, pixels.
        minimal: robust accuracy over pixels, of searches for the fewest; else success over queries.
        curves: one or more.
    """

    heading: str
    minimal: bool
    curves: tuple[Curve, ...]

    @property
    def axes(self) -> tuple[str, str]:
        """What is drawn from left to right, and from bottom to top."""
        if self.minimal:
            return "pixels that may be changed", "robust accuracy, %"
        return "queries", "fooled, %"

    @property
    def limit(self) -> int:
        """Where the longest curve ends."""
        return max(curve.points[-1].at for curve in self.curves)

    @property
    def bands(self) -> bool:
        """Whether bands are drawn."""
        return len(self.curves) <= MOST_BANDS

    @property
    def caption(self) -> str:
        """What lines and bands are."""
        numbers = {curve.seeds for curve in self.curves}
        several = sorted(number for number in numbers if number > 1)
        seeds = f"Lines are means over {' or '.join(map(str, several))} seeds. " if several else ""
        if not self.bands:
            return f"{seeds}So many curves are drawn without bands."
        if numbers == {1}:
            return f"Bands are {_INTERVAL}."
        if 1 not in numbers:
            return f"{seeds}Bands go {_RANGE}."
        return f"{seeds}Their bands go {_RANGE}; the bands of single seeds are {_INTERVAL}."

    @property
    def brackets(self) -> str:
        """What the ends of bands are, where they stand as numbers."""
        numbers = {curve.seeds for curve in self.curves}
        if numbers == {1}:
            return f"Brackets are {_INTERVAL}."
        single = f"; those of single seeds are {_INTERVAL}" if 1 in numbers else ""
        return f"Brackets go {_RANGE}{single}."

    @property
    def words(self) -> str:
        """The chart for those who cannot see it."""
        title = "Robust accuracy over pixels" if self.minimal else "Success rate over queries"
        ends = [(curve.name, curve.points[-1]) for curve in self.curves]
        told = "; ".join(f"{name} {100 * end.value:.0f} % at {end.at}" for name, end in ends)
        return f"{title}. {told}"


def steps_of(setting: Setting, rows: Sequence[Row]) -> Steps:
    """Success over queries or, of a search for the fewest pixels, robust accuracy over pixels."""
    if setting.minimal:
        return PixelsNeeded.of(rows, setting.pixels).robust
    return success_steps(rows, setting.queries)


def run_charts(run: Run) -> list[Chart]:
    """The charts of a run."""
    return charts({setting: steps_of(setting, run.stored(setting)) for setting in run.settings})


def charts(steps: Mapping[Setting, Steps]) -> list[Chart]:
    """A chart for each goal and number of pixels, and one of searches for the fewest pixels.

    Seeds are drawn as one curve. Settings that have attacked nothing yet have none.

    Args:
        steps: what is to be drawn of each setting of a run.
    """
    colours = attack_colours(steps)
    together: dict[tuple[bool, str], list[Curve]] = {}
    dashes: Counter[tuple[object, ...]] = Counter()
    for family in families(steps):
        seeds = [steps[setting] for setting in family.settings if _begun(steps[setting])]
        if not seeds:
            continue
        attack, place = family.first.attack, (family.first.minimal, _heading(family.first))
        look = colours[attack], dashes[attack, place]
        curve = Curve(_name(family), _points(seeds), len(seeds), *look)
        together.setdefault(place, []).append(curve)
        dashes[attack, place] += 1
    found = [Chart(heading, minimal, tuple(some)) for (minimal, heading), some in together.items()]
    return sorted(found, key=lambda chart: chart.minimal)


def attack_colours(settings: Iterable[Setting]) -> dict[str, int]:
    """A number of a colour for each attack, the same in all its settings."""
    names = dict.fromkeys(setting.attack for setting in settings)
    return {name: at % len(COLOURS) for at, name in enumerate(names)}


def _begun(steps: Steps) -> bool:
    return next(iter(steps.values())).count > 0


def _heading(setting: Setting) -> str:
    return setting.goal if setting.minimal else f"{setting.goal}, {setting.pixels} pixels"


def _name(family: Family) -> str:
    own_budget = family.limited or family.first.minimal
    return f"{family.name}, {family.budget}" if own_budget else family.name


def _points(seeds: Sequence[Steps]) -> list[Point]:
    """One seed with its intervals; mean, lowest and highest of several, wherever one has a step."""
    if len(seeds) == 1:
        return [Point(at, rate.value, *rate.interval) for at, rate in seeds[0].items()]
    marks = sorted({mark for steps in seeds for mark in steps})
    heights = np.stack([_heights(steps, marks) for steps in seeds])
    ends = heights.mean(axis=0), heights.min(axis=0), heights.max(axis=0)
    return [Point(mark, *map(float, end)) for mark, *end in zip(marks, *ends, strict=True)]


def _heights(steps: Steps, marks: Sequence[int]) -> NDArray[np.float64]:
    """A step function at ``marks``, the first of which is its own first."""
    own, values = sorted(steps), np.array([steps[mark].value for mark in sorted(steps)])
    heights: NDArray[np.float64] = values[np.searchsorted(own, marks, side="right") - 1]
    return heights
