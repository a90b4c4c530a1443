"""What a report says about one setting, and about all seeds of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brusle.errors import InputError
from brusle.evaluation.record import Row, Setting
from brusle.evaluation.statistics import (
    Flag,
    Rate,
    Spread,
    Summary,
    by_label,
    by_target,
    cost,
    mean_needed,
    over_seeds,
    robust_accuracy,
    success_grid,
    success_rate,
)
from brusle.evaluation.statistics.counting import won
from brusle.evaluation.statistics.rates import or_none
from brusle.evaluation.storing.runs import Run, summarise
from brusle.outcomes import FAULTY
from brusle.report.curves import Steps, steps_of
from brusle.report.families import Family, families

Metric = Callable[[Sequence[Row], Setting], float]
SHARES: dict[str, Metric] = {
    "ASR": lambda rows, setting: success_rate(rows, setting.queries).value,
    "robust accuracy": lambda rows, setting: robust_accuracy(rows, setting.queries).value,
}
_EFFORT: dict[str, Metric] = {
    "mean queries": lambda rows, setting: cost(rows, setting.queries).mean,
}
_FEWEST: dict[str, Metric] = {
    "mean pixels needed": lambda rows, setting: mean_needed(rows, setting.pixels),
}
_MARKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)


@dataclass(frozen=True)
class SettingReport:
    """One setting.

    Attributes:
        setting: what was run.
        summary: its numbers.
        flags: reasons to doubt them.
        steps: success rate over queries, see `success_steps`; of a search for the fewest pixels
            robust accuracy over pixels, see `PixelsNeeded`.
        grid: success rate within some numbers of queries; empty of a search for the fewest pixels.
        by_label: a summary of each true class.
        by_target: a summary of each target class.
        moves: success rate from true class to target.
        pixels: how many successes changed so many pixels.
        troubles: how many rows have this status and reason, "error" or "unverified".
    """

    setting: Setting
    summary: Summary
    flags: list[Flag]
    steps: Steps
    grid: dict[int, Rate]
    by_label: dict[int, Summary]
    by_target: dict[int, Summary]
    moves: dict[tuple[int, int], Rate]
    pixels: dict[int, int]
    troubles: dict[tuple[str, str], int]

    @classmethod
    def of(
        cls, setting: Setting, rows: Sequence[Row], flags: list[Flag], randomised: bool
    ) -> SettingReport:
        """Count everything that a report says about ``rows``."""
        limit = setting.queries
        grid = success_grid({setting.pixels: rows}, [] if setting.minimal else marks_to(limit))
        return cls(
            setting=setting,
            summary=summarise(setting, rows, randomised),
            flags=flags,
            steps=steps_of(setting, rows),
            grid={queries: rate for (queries, _), rate in grid.items()},
            by_label=by_label(rows, limit, setting.fewest),
            by_target=by_target(rows, limit, setting.fewest),
            moves=_moves(rows, limit),
            pixels=_count(row.pixels for row in rows if won(row)),
            troubles=_count((row.status, row.error) for row in rows if row.status in FAULTY),
        )

    @property
    def finished(self) -> bool:
        """Whether all that was asked for is stored."""
        return self.summary.images >= self.setting.problems

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **vars(self.setting),
            "minimal": self.setting.minimal,
            "stored": self.summary.images,
            "finished": self.finished,
            "summary": self.summary.as_dict(),
            "flags": {flag.name: flag.text for flag in self.flags},
            "asr_within": {str(q): rate.as_dict() for q, rate in self.grid.items()},
            "by_label": {str(c): summary.as_dict() for c, summary in self.by_label.items()},
            "by_target": {str(c): summary.as_dict() for c, summary in self.by_target.items()},
            "from_to": [
                {"label": a, "target": b, **rate.as_dict()} for (a, b), rate in self.moves.items()
            ],
            "pixels_of_successes": {str(n): count for n, count in self.pixels.items()},
            "troubles": [
                {"status": status, "reason": reason, "count": count}
                for (status, reason), count in self.troubles.items()
            ],
        }


@dataclass(frozen=True)
class FamilyReport:
    """Settings that differ in their seed alone.

    Attributes:
        family: the settings.
        seeds: what is said about each of them.
    """

    family: Family
    seeds: tuple[SettingReport, ...]

    @property
    def setting(self) -> Setting:
        """The first of them."""
        return self.family.first

    @property
    def minimal(self) -> bool:
        """Whether these are searches for the fewest pixels."""
        return self.setting.minimal

    @property
    def summary(self) -> Summary:
        """The numbers of the first seed."""
        return self.seeds[0].summary

    @property
    def asr(self) -> Rate:
        """Success rate, all seeds together."""
        return pooled(seed.summary.asr for seed in self.seeds)


@dataclass(frozen=True)
class SeedSpread:
    """A metric of a family over its seeds.

    Attributes:
        family: the settings.
        metric: what varies.
        spread: how much; None if the seeds cannot be compared.
        problem: why not.
    """

    family: Family
    metric: str
    spread: Spread | None
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        spread = (
            None if self.spread is None else {k: or_none(v) for k, v in vars(self.spread).items()}
        )
        return {
            "setting": self.family.title,
            "queries": self.family.first.queries,
            "metric": self.metric,
            "spread": spread,
            "problem": self.problem or None,
        }


def family_reports(reports: Mapping[Setting, SettingReport]) -> list[FamilyReport]:
    """Put together what differs in the seed alone."""
    return [
        FamilyReport(family, tuple(reports[setting] for setting in family.settings))
        for family in families(reports)
    ]


def seed_spreads(run: Run, family: Family) -> list[SeedSpread]:
    """What varies with the seed; nothing of a single one."""
    if len(family.settings) < 2:
        return []
    rows = [run.stored(setting) for setting in family.settings]
    lines = []
    for name, metric in (SHARES | (_FEWEST if family.first.minimal else _EFFORT)).items():
        try:
            spread = over_seeds(rows, _with_setting(metric, family.first))
            lines.append(SeedSpread(family, name, spread))
        except InputError as error:  # unfinished: the other families still stand
            return [SeedSpread(family, name, None, str(error))]
    return lines


def marks_to(limit: int) -> list[int]:
    """Round numbers, up to the limit, at which grids give rates."""
    return [*(mark for mark in _MARKS if mark < limit), limit]


def pooled(rates: Iterable[Rate]) -> Rate:
    """All together; of several seeds on the same problems the value is their mean.

    The interval is not to be shown: seeds are not independent images.
    """
    rates = list(rates)
    return Rate(sum(rate.hits for rate in rates), sum(rate.count for rate in rates))


def _with_setting(metric: Metric, setting: Setting) -> Callable[[Sequence[Row]], float]:
    return lambda rows: metric(rows, setting)


def _moves(rows: Iterable[Row], limit: int) -> dict[tuple[int, int], Rate]:
    groups: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        if row.target is not None:
            groups.setdefault((row.label, row.target), []).append(row)
    return {move: success_rate(groups[move], limit) for move in sorted(groups)}


def _count(things: Iterable[Any]) -> dict[Any, int]:
    return dict(sorted(Counter(things).items()))
