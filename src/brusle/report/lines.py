"""Two settings on the same problems: one line of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from brusle.errors import InputError
from brusle.evaluation.record import Row, Setting
from brusle.evaluation.statistics import (
    Comparison,
    Match,
    PixelsNeeded,
    Rate,
    Spread,
    compare_matches,
    cost,
    robust_accuracy,
    spread,
    success_rate,
)
from brusle.evaluation.statistics.rates import or_none
from brusle.evaluation.storing.runs import Run
from brusle.report.matching import Counterparts


@dataclass(frozen=True)
class Side:
    """The numbers of one side of a line.

    Attributes:
        asr: success rate over the problems that both attacked.
        robust: robust accuracy over the problems on which neither failed with an error.
        effort: mean queries, a failure counting as the limit; or mean pixels needed, an image that
            was not fooled counting as one more than the limit.
        median: pixels that half of the images need; NaN unless these are searches for the fewest.
    """

    asr: Rate
    robust: Rate
    effort: float
    median: float = float("nan")


@dataclass(frozen=True)
class Line:
    """Two settings on the same problems, with all seeds that both have.

    Attributes:
        counterparts: the settings of each seed: the one that is compared with, and the one
            compared.
        queries: where success rates are compared; without a meaning for ``minimal`` ones.
        sides: numbers of both, all seeds pooled.
        found: the comparison, the other minus (or over) the baseline; None if there is none.
        seeds: how the numbers of ``found`` vary from seed to seed, by name; empty with one seed.
        problem: why there is no comparison.
    """

    counterparts: tuple[Counterparts, ...]
    queries: int
    sides: tuple[Side, Side]
    found: Comparison | None
    seeds: dict[str, Spread]
    problem: str = ""

    @property
    def baseline(self) -> Setting:
        """The setting that is compared with, without a seed if there are several."""
        return _seedless([pair[0] for pair in self.counterparts])

    @property
    def other(self) -> Setting:
        """The setting that is compared, without a seed if there are several."""
        return _seedless([pair[1] for pair in self.counterparts])

    @property
    def minimal(self) -> bool:
        """Whether these are searches for the fewest pixels."""
        return self.other.minimal

    @property
    def rates(self) -> tuple[Rate, Rate]:
        """Success rates of baseline and other."""
        return self.sides[0].asr, self.sides[1].asr

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found, minimal = self.found, self.minimal
        base, other = self.sides
        effort = {
            "ratio": None if found is None else asdict(found.ratio),
            "ratio_excludes_1": found is not None and found.ratio.excludes(1),
            "difference": None if found is None else asdict(found.excess),
            "baseline_mean": or_none(base.effort),
            "other_mean": or_none(other.effort),
        }
        return {
            "goal": self.other.goal,
            "pixels": self.other.pixels,
            "minimal": minimal,
            "baseline": self.baseline.name,
            "other": self.other.name,
            "seeds": [pair[1].seed for pair in self.counterparts],
            "queries": None if minimal else self.queries,
            "baseline_asr": base.asr.as_dict(),
            "other_asr": other.asr.as_dict(),
            "difference": None if found is None else asdict(found.difference),
            "difference_excludes_0": found is not None and found.difference.excludes(0),
            "baseline_robust_accuracy": base.robust.as_dict(),
            "other_robust_accuracy": other.robust.as_dict(),
            "robust_difference": None if found is None else asdict(found.robust),
            "robust_difference_excludes_0": found is not None and found.robust.excludes(0),
            "ratio_of_queries": None if minimal else effort["ratio"],
            "ratio_excludes_1": not minimal and effort["ratio_excludes_1"],
            "pixels_needed": effort | self._medians() if minimal else None,
            "over_seeds": {
                name: {key: or_none(value) for key, value in vars(some).items()}
                for name, some in self.seeds.items()
            },
            "limit": min(self.baseline.queries, self.other.queries),
            "pairs": base.asr.count,
            "problem": self.problem or None,
        }

    def _medians(self) -> dict[str, float | None]:
        """None is more than the limit."""
        base, other = (side.median for side in self.sides)
        return {
            "baseline_median": None if base > self.other.pixels else or_none(base),
            "other_median": None if other > self.other.pixels else or_none(other),
        }


@dataclass(frozen=True)
class ComparedRows:
    """A line, and the rows that it was made of, seed by seed."""

    line: Line
    matches: list[Match]


def compare_settings(
    first: Run, second: Run, counterparts: tuple[Counterparts, ...], queries: int | None
) -> ComparedRows:
    """Compare settings of two runs, or of one.

    Args:
        first: the run that is compared with.
        second: the run that is compared.
        counterparts: a setting of each run, for all seeds that both have.
        queries: where to compare success rates; None is the smaller query limit.
    """
    matches = [
        _match(base, other, second.stored(other), first.stored(base), queries)
        for base, other in counterparts
    ]
    found, problem = None, ""
    try:
        found = compare_matches(matches)
    except InputError as error:  # too few images: the other lines still stand
        problem = str(error)
    sides = _sides(matches)
    line = Line(counterparts, matches[0].at, sides, found, _over_seeds(matches), problem)
    return ComparedRows(line, matches)


def _match(
    baseline: Setting,
    other: Setting,
    rows: Sequence[Row],
    base_rows: Sequence[Row],
    queries: int | None,
) -> Match:
    """The other setting is the first, since it is compared with the baseline."""
    limits = baseline.queries, other.queries
    if other.minimal:
        return Match(rows, base_rows, max(limits), fewest=min(baseline.pixels, other.pixels))
    return Match(rows, base_rows, min(limits), queries)


def _over_seeds(matches: Sequence[Match]) -> dict[str, Spread]:
    """How the change varies from seed to seed; empty with one seed."""
    if len(matches) < 2:
        return {}
    changes = [_change(*_sides([match])) for match in matches]
    return {name: spread([change[name] for change in changes]) for name in changes[0]}


def _sides(matches: Sequence[Match]) -> tuple[Side, Side]:
    """Numbers of baseline and other, over matches with the same limits."""
    attacked = [pair for match in matches for pair in match.attacked()]
    answered = [pair for match in matches for pair in match.answered()]
    base, other = (
        _side([pair[at] for pair in attacked], [pair[at] for pair in answered], matches[0])
        for at in (1, 0)
    )
    return base, other


def _side(attacked: Sequence[Row], answered: Sequence[Row], match: Match) -> Side:
    rates = success_rate(attacked, *match.most), robust_accuracy(answered, *match.most)
    if match.fewest is None:
        return Side(*rates, cost(attacked, match.limit).mean)
    needed = PixelsNeeded.of(attacked, match.fewest)
    return Side(*rates, needed.bound, needed.median.value)


def _change(base: Side, other: Side) -> dict[str, float]:
    """The numbers of a `Comparison`, by name."""
    return {
        "difference": other.asr.value - base.asr.value,
        "robust": other.robust.value - base.robust.value,
        "ratio": other.effort / base.effort,
        "excess": other.effort - base.effort,
    }


def _seedless(settings: Sequence[Setting]) -> Setting:
    """The setting, or what several that differ in their seed alone have in common."""
    return settings[0] if len(settings) == 1 else settings[0].model_copy(update={"seed": 0})
