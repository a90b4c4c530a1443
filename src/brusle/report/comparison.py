"""Two runs, or the attacks of one, line by line on the problems that both attacked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from brusle.errors import InputError
from brusle.evaluation.metrics import Rate
from brusle.evaluation.runs import Run
from brusle.evaluation.statistics import Comparison, Estimate, compare, success_rate
from brusle.evaluation.store import Record, Row

_FACTS = {
    "victim": "the victims differ",
    "weights": "the weights differ",
    "data": "the data differ",
    "brusle": "the versions of brusle differ",
}


@dataclass(frozen=True)
class Line:
    """Two settings on the same problems.

    Attributes:
        baseline: the setting that is compared with.
        other: the setting that is compared.
        queries: where success rates are compared.
        rates: success rates of ``baseline`` and ``other`` over the problems that both attacked.
        found: the comparison, ``other`` minus (or over) ``baseline``; None if there is none.
        problem: why there is none.
    """

    baseline: Record
    other: Record
    queries: int
    rates: tuple[Rate, Rate]
    found: Comparison | None
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = self.found
        return {
            "goal": self.other.goal,
            "pixels": self.other.pixels,
            "baseline": self.baseline.name,
            "other": self.other.name,
            "queries": self.queries,
            "baseline_asr": self.rates[0].as_dict(),
            "other_asr": self.rates[1].as_dict(),
            "difference": None if found is None else asdict(found.difference),
            "difference_excludes_0": found is not None and excludes(found.difference, 0),
            "ratio_of_queries": None if found is None else asdict(found.ratio),
            "ratio_excludes_1": found is not None and excludes(found.ratio, 1),
            "limit": min(self.baseline.queries, self.other.queries),
            "pairs": self.rates[0].count,
            "problem": self.problem or None,
        }


@dataclass(frozen=True)
class Section:
    """Comparisons of a kind.

    Attributes:
        title: what is compared.
        lines: the comparisons.
        baseline: the attack that all are compared with; empty if they are pairs of two runs.
        notes: what else differs, or is to be known.
        unmatched: settings that have no counterpart.
    """

    title: str
    lines: tuple[Line, ...]
    baseline: str = ""
    notes: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()

    def label(self, line: Line) -> str:
        """What a line is about, as far as the title does not say it."""
        if self.baseline or line.baseline.name == line.other.name:
            return line.other.title
        return f"{line.other.title} / {line.baseline.name}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "lines": [line.as_dict() for line in self.lines]}


def excludes(estimate: Estimate, value: float) -> bool:
    """Whether the interval does not hold ``value``."""
    return not estimate.low <= value <= estimate.high


def compare_runs(
    runs: Sequence[Run], baseline: str | None = None, queries: int | None = None
) -> list[Section]:
    """Compare every other run with the first, and in each run the attacks with a baseline.

    Args:
        runs: one run or more.
        baseline: name of the attack that others of the same run are compared with; None is the
            first of each run.
        queries: where to compare success rates; None is the smaller query limit.
    """
    if baseline is not None and not any(_find(run, baseline) for run in runs):
        names = ", ".join(dict.fromkeys(s.attack for run in runs for s in run.settings))
        raise InputError(f"no run holds an attack {baseline!r}: choose from {names or 'none'}")
    sections = [across(runs[0], other, queries) for other in runs[1:]]
    inside = [within(run, baseline, queries) for run in runs]
    sections += [section for section in inside if section is not None]
    if not sections:
        raise InputError(
            f"{runs[0].folder} holds fewer than two attacks: give another run to compare it with"
        )
    return sections


def within(run: Run, baseline: str | None = None, queries: int | None = None) -> Section | None:
    """The attacks of a run against one of them; None if it holds no other.

    Args:
        run: the run.
        baseline: name of the attack to compare with; None is the first.
        queries: where to compare success rates; None is the smaller query limit.
    """
    attacks = list(dict.fromkeys(setting.attack for setting in run.settings))
    name = attacks[0] if baseline is None and attacks else _find(run, baseline or "")
    if name is None or len(attacks) < 2:
        return None
    base = [setting for setting in run.settings if setting.attack == name]
    pairs, alone = [], []
    for other in run.settings:
        if other.attack == name:
            continue
        same = [setting for setting in base if _place(setting) == _place(other)]
        same.sort(key=lambda setting: setting.queries != other.queries)
        if same:
            pairs.append((same[0], other))
        else:
            alone.append(f"{other.title}: {name} was not run so")
    lines = _lines(run, run, pairs, queries)
    notes = [*_limit_notes(pairs), *_unfinished(run, "the run")]
    title = f"{run.folder}: attacks against {name}"
    return Section(title, lines, name, tuple(notes), tuple(alone))


def across(first: Run, other: Run, queries: int | None = None) -> Section:
    """A run against another; settings are matched as `match` says.

    Args:
        first: the baseline.
        other: the run that is compared with it.
        queries: where to compare success rates; None is the smaller query limit.
    """
    pairs = match(first.settings, other.settings)
    lines = _lines(first, other, pairs, queries)
    alone = [
        f"{setting.title}: only in {run.folder}"
        for at, run in enumerate((first, other))
        for setting in run.settings
        if setting not in [pair[at] for pair in pairs]
    ]
    differ = [
        f"{words}: {first.about.get(fact)} and {other.about.get(fact)}"
        for fact, words in _FACTS.items()
        if first.about.get(fact) != other.about.get(fact)
    ]
    notes = [
        *differ,
        *_limit_notes(pairs),
        *_unfinished(first, f"{first.folder}"),
        *_unfinished(other, f"{other.folder}"),
    ]
    title = f"{other.folder} against {first.folder}"
    return Section(title, lines, "", tuple(notes), tuple(alone))


def match(first: Sequence[Record], second: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Settings that belong together, each once.

    Those of the same goal, pixels, seed, eot and attack, and if possible the same query limit; of
    the rest, those that are the only ones of their run with this goal and number of pixels.
    """
    left, right, pairs = list(first), list(second), []
    for same_limit in (True, False):
        for mine in list(left):
            for yours in right:
                alike = _place(mine) == _place(yours) and mine.attack == yours.attack
                if alike and (mine.queries == yours.queries or not same_limit):
                    pairs.append((mine, yours))
                    left.remove(mine)
                    right.remove(yours)
                    break
    for mine in left:
        ours = [s for s in first if (s.goal, s.pixels) == (mine.goal, mine.pixels)]
        theirs = [s for s in second if (s.goal, s.pixels) == (mine.goal, mine.pixels)]
        if len(ours) == len(theirs) == 1:
            pairs.append((mine, theirs[0]))
    return sorted(pairs, key=lambda pair: list(first).index(pair[0]))


def _place(setting: Record) -> tuple[str, int, int, int]:
    return setting.goal, setting.pixels, setting.seed, setting.eot


def _find(run: Run, name: str) -> str | None:
    """The attack of a run that is called so, as in ``sparse-rs``, with or without its options."""
    attacks = list(dict.fromkeys(setting.attack for setting in run.settings))
    plain = {_plain(attack.split(" ")[0]): attack for attack in reversed(attacks)}
    return (plain | {_plain(attack): attack for attack in attacks}).get(_plain(name))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _lines(
    first: Run, second: Run, pairs: Iterable[tuple[Record, Record]], queries: int | None
) -> tuple[Line, ...]:
    return tuple(
        _line(mine, yours, first.stored(mine), second.stored(yours), queries)
        for mine, yours in pairs
    )


def _line(
    baseline: Record,
    other: Record,
    base_rows: Sequence[Row],
    rows: Sequence[Row],
    queries: int | None,
) -> Line:
    limit = min(baseline.queries, other.queries)
    at = limit if queries is None else queries
    both = _attacked(base_rows) & _attacked(rows)
    base_rate, rate = (
        success_rate([row for row in some if row.problem in both], at) for some in (base_rows, rows)
    )
    found, problem = None, ""
    try:
        found = compare(rows, base_rows, limit, at)
    except InputError as error:  # too few images: the other lines still stand
        problem = str(error)
    return Line(baseline, other, at, (base_rate, rate), found, problem)


def _attacked(rows: Iterable[Row]) -> set[int]:
    return {row.problem for row in rows if row.status not in ("skipped", "error")}


def _limit_notes(pairs: Iterable[tuple[Record, Record]]) -> list[str]:
    differ = {(a.queries, b.queries) for a, b in pairs if a.queries != b.queries}
    return [
        f"the query limits differ: {a} and {b}, compared at {min(a, b)}" for a, b in sorted(differ)
    ]


def _unfinished(run: Run, name: str) -> list[str]:
    counts = run.store.counts()
    left = [s for s in run.settings if sum(counts.get(s.number, {}).values()) < s.problems]
    if not left:
        return []
    return [
        f"{name} is unfinished in {len(left)} of {len(run.settings)} settings, whose "
        f"rates are too high: successes end earlier than failures"
    ]
