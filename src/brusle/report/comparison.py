"""Two runs, or the attacks of one, line by line on the problems that both attacked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from brusle.errors import InputError
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
from brusle.evaluation.storing.store import Record, Row
from brusle.report.verdicts import Compared, Verdict, Words, verdicts_on

_FACTS = {
    "victim": "the victims differ",
    "weights": "the weights differ",
    "data": "the data differ",
    "brusle": "the versions of brusle differ",
}
Pair = tuple[Record, Record]  # the setting that is compared with, and the one that is compared


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
        pairs: the settings of each seed: the one that is compared with, and the one compared.
        queries: where success rates are compared; without a meaning for ``minimal`` ones.
        sides: numbers of both, all seeds pooled.
        found: the comparison, the other minus (or over) the baseline; None if there is none.
        seeds: how the numbers of ``found`` vary from seed to seed, by name; empty with one seed.
        problem: why there is no comparison.
    """

    pairs: tuple[Pair, ...]
    queries: int
    sides: tuple[Side, Side]
    found: Comparison | None
    seeds: dict[str, Spread]
    problem: str = ""

    @property
    def baseline(self) -> Record:
        """The setting that is compared with, without a seed if there are several."""
        return _seedless([pair[0] for pair in self.pairs])

    @property
    def other(self) -> Record:
        """The setting that is compared, without a seed if there are several."""
        return _seedless([pair[1] for pair in self.pairs])

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
            "seeds": [pair[1].seed for pair in self.pairs],
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
class Section:
    """Comparisons of a kind.

    Attributes:
        title: what is compared.
        lines: the comparisons.
        baseline: the attack that all are compared with; empty if they are pairs of two runs.
        notes: what else differs, or is to be known.
        unmatched: settings that have no counterpart.
        verdicts: what the lines say together.
    """

    title: str
    lines: tuple[Line, ...]
    baseline: str = ""
    notes: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()

    def label(self, line: Line) -> str:
        """What a line is about, as far as the title does not say it."""
        seeds = f", {len(line.pairs)} seeds" if len(line.pairs) > 1 else ""
        if self.baseline or line.baseline.name == line.other.name:
            return line.other.title + seeds
        return f"{line.other.title} / {line.baseline.name}{seeds}"

    def remarks(self) -> list[str]:
        """What could not be compared, and what else differs."""
        failed = [f"{self.label(line)}: {line.problem}" for line in self.lines if line.problem]
        return [
            *(f"note: {note}" for note in self.notes),
            *(f"no match: {name}" for name in self.unmatched),
            *(f"not compared: {text}" for text in failed),
        ]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **vars(self),
            "lines": [line.as_dict() for line in self.lines],
            "verdicts": [verdict.as_dict() for verdict in self.verdicts],
        }


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
    made = [_Made.of(run, run, family, queries) for family in _families(pairs)]
    verdicts = []
    for attack in dict.fromkeys(one.line.other.attack for one in made):
        some = [one for one in made if one.line.other.attack == attack]
        words = Words(attack, name, f"{attack} succeeds", f"{attack} needs")
        verdicts += _verdicts(some, words)
    return Section(
        title=f"{run.folder}: attacks against {name}",
        lines=tuple(one.line for one in made),
        baseline=name,
        notes=(*_notes(pairs, queries), *_unfinished(run, "the run")),
        unmatched=tuple(alone),
        verdicts=tuple(verdicts),
    )


def across(first: Run, other: Run, queries: int | None = None) -> Section:
    """A run against another; settings are matched as `match` says.

    Args:
        first: the baseline.
        other: the run that is compared with it.
        queries: where to compare success rates; None is the smaller query limit.
    """
    pairs = match(first.settings, other.settings)
    made = [_Made.of(first, other, family, queries) for family in _families(pairs)]
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
        *_notes(pairs, queries),
        *_unfinished(first, f"{first.folder}"),
        *_unfinished(other, f"{other.folder}"),
    ]
    attacks = f"In {other.folder}, attacks"
    words = Words(
        str(other.folder), str(first.folder), f"{attacks} succeed", f"{attacks} need", "in "
    )
    return Section(
        title=f"{other.folder} against {first.folder}",
        lines=tuple(one.line for one in made),
        notes=tuple(notes),
        unmatched=tuple(alone),
        verdicts=tuple(_verdicts(made, words)),
    )


def match(first: Sequence[Record], second: Sequence[Record]) -> list[Pair]:
    """Settings that belong together, each once.

    Those of the same goal, pixels, seed, eot and attack, and if possible the same query limit; of
    the rest, those that but for their seed are the only ones of their run with this goal and number
    of pixels, with the same seed, or whatever the seed if there is one setting each. A search for
    the fewest pixels belongs to another such search only.
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
        ours = [s for s in first if _budget(s) == _budget(mine)]
        theirs = [s for s in second if _budget(s) == _budget(mine)]
        if len({s.family for s in ours}) == len({s.family for s in theirs}) == 1:
            single = len(ours) == len(theirs) == 1
            pairs += [(mine, yours) for yours in theirs if single or mine.seed == yours.seed]
    return sorted(pairs, key=lambda pair: list(first).index(pair[0]))


def _budget(setting: Record) -> tuple[str, int, bool]:
    return setting.goal, setting.pixels, setting.minimal


def _place(setting: Record) -> tuple[object, ...]:
    return *_budget(setting), setting.seed, setting.eot


def _families(pairs: Iterable[Pair]) -> list[tuple[Pair, ...]]:
    """Pairs that differ in their seed alone, together."""
    found: dict[tuple[object, ...], list[Pair]] = {}
    for mine, yours in pairs:
        found.setdefault((mine.family, yours.family), []).append((mine, yours))
    return [tuple(family) for family in found.values()]


def _seedless(settings: Sequence[Record]) -> Record:
    """The setting, or what several that differ in their seed alone have in common."""
    return settings[0] if len(settings) == 1 else replace(settings[0], seed=0)


def _find(run: Run, name: str) -> str | None:
    """The attack of a run that is called so, as in ``sparse-rs``, with or without its options."""
    attacks = list(dict.fromkeys(setting.attack for setting in run.settings))
    plain = {_plain(attack.split(" ")[0]): attack for attack in reversed(attacks)}
    return (plain | {_plain(attack): attack for attack in attacks}).get(_plain(name))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@dataclass(frozen=True)
class _Made:
    """A line, and the rows that it was made of."""

    line: Line
    matches: list[Match]

    @classmethod
    def of(cls, first: Run, second: Run, pairs: tuple[Pair, ...], queries: int | None) -> _Made:
        matches = [
            _match(mine, yours, second.stored(yours), first.stored(mine), queries)
            for mine, yours in pairs
        ]
        found, problem = None, ""
        try:
            found = compare_matches(matches)
        except InputError as error:  # too few images: the other lines still stand
            problem = str(error)
        seeds: dict[str, Spread] = {}
        if len(matches) > 1:
            changes = [_change(*_sides([match])) for match in matches]
            seeds = {name: spread([change[name] for change in changes]) for name in changes[0]}
        line = Line(pairs, matches[0].at, _sides(matches), found, seeds, problem)
        return cls(line, matches)


def _verdicts(made: Iterable[_Made], words: Words) -> list[Verdict]:
    """What lines that could be compared say together."""
    found = [
        Compared(one.line.found, one.matches, one.line.minimal) for one in made if one.line.found
    ]
    return verdicts_on(found, words)


def _match(
    baseline: Record,
    other: Record,
    rows: Sequence[Row],
    base_rows: Sequence[Row],
    queries: int | None,
) -> Match:
    """The other setting is the first, since it is compared with the baseline."""
    limits = baseline.queries, other.queries
    if other.minimal:
        return Match(rows, base_rows, max(limits), fewest=min(baseline.pixels, other.pixels))
    return Match(rows, base_rows, min(limits), queries)


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


def _notes(pairs: Iterable[Pair], queries: int | None) -> list[str]:
    """What to know about query limits."""
    pairs = list(pairs)
    differ = {(a.queries, b.queries, b.minimal) for a, b in pairs if a.queries != b.queries}
    notes = [
        f"the query limits differ: {a} and {b}, "
        + ("which searches for the fewest pixels spend" if minimal else f"compared at {min(a, b)}")
        for a, b, minimal in sorted(differ)
    ]
    if queries is not None and any(b.minimal for _, b in pairs):
        notes.append("--queries does not matter to searches for the fewest pixels")
    return notes


def _unfinished(run: Run, name: str) -> list[str]:
    counts = run.store.counts()
    left = [s for s in run.settings if sum(counts.get(s.number, {}).values()) < s.problems]
    if not left:
        return []
    return [
        f"{name} is unfinished in {len(left)} of {len(run.settings)} settings, whose "
        f"rates are too high: successes end earlier than failures"
    ]
