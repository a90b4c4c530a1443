"""Two runs, or the attacks of one, line by line on the problems that both attacked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from brusle.errors import InputError
from brusle.evaluation.storing.finding import find_attack
from brusle.evaluation.storing.runs import Run
from brusle.report.lines import Line, compare_settings
from brusle.report.matching import Counterparts, against, by_seed, match
from brusle.report.verdicts import Verdict, Words, verdicts_on

_FACTS = {
    "defended_victim": "the victims differ",
    "weights": "the weights differ",
    "data": "the data differ",
    "brusle": "the versions of brusle differ",
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
        seeds = f", {len(line.counterparts)} seeds" if len(line.counterparts) > 1 else ""
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
    if baseline is not None and not any(find_attack(run.settings, baseline) for run in runs):
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
    name = attacks[0] if baseline is None and attacks else find_attack(run.settings, baseline or "")
    if name is None or len(attacks) < 2:
        return None
    base = [setting for setting in run.settings if setting.attack == name]
    others = [setting for setting in run.settings if setting.attack != name]
    pairs, alone = against(base, others)
    compared = [compare_settings(run, run, family, queries) for family in by_seed(pairs)]
    verdicts = []
    for attack in dict.fromkeys(one.line.other.attack for one in compared):
        mine = [one for one in compared if one.line.other.attack == attack]
        words = Words(attack, name, f"{attack} succeeds", f"{attack} needs")
        verdicts += verdicts_on(mine, words)
    return Section(
        title=f"{run.folder}: attacks against {name}",
        lines=tuple(one.line for one in compared),
        baseline=name,
        notes=(*_notes(pairs, queries), *_unfinished(run, "the run")),
        unmatched=tuple(f"{setting.title}: {name} was not run so" for setting in alone),
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
    compared = [compare_settings(first, other, family, queries) for family in by_seed(pairs)]
    alone = [
        f"{setting.title}: only in {run.folder}"
        for at, run in enumerate((first, other))
        for setting in run.settings
        if setting not in [pair[at] for pair in pairs]
    ]
    differ = [
        f"{words}: {getattr(first.about, fact)} and {getattr(other.about, fact)}"
        for fact, words in _FACTS.items()
        if getattr(first.about, fact) != getattr(other.about, fact)
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
        lines=tuple(one.line for one in compared),
        notes=tuple(notes),
        unmatched=tuple(alone),
        verdicts=tuple(verdicts_on(compared, words)),
    )


def _notes(pairs: Iterable[Counterparts], queries: int | None) -> list[str]:
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
