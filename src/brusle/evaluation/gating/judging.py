"""`brusle.evaluation.gate`: is a stored run good enough?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from brusle.errors import InputError
from brusle.evaluation.gating.answers import Answer, Verdict
from brusle.evaluation.gating.counts import Drop, Robust
from brusle.evaluation.gating.images import Fate, Fates, Image, fates
from brusle.evaluation.gating.matching import settings_at
from brusle.evaluation.gating.questions import At, Condition, Gate
from brusle.evaluation.record import GoalName, Setting
from brusle.evaluation.storing.runs import Run


def gate(
    run: Run | str | Path,
    at: str | At | Sequence[str | At],
    min_robust: float | Sequence[float] | None = None,
    *,
    baseline: Run | str | Path | None = None,
    max_drop: float | None = None,
    confidence: float = 95.0,
    attack: str = "",
    goal: GoalName | None = None,
) -> Verdict:
    """Say whether a run is robust enough, is not, or has too few images to tell.

    Args:
        run: the run, or its folder.
        at: pixels and queries, as in ``"5px,300q"``; several are conditions that must all hold.
        min_robust: the robust accuracy must be at least so many percent; one number for all of
            ``at``, or one for each.
        baseline: a run of another victim on the same images, or its folder.
        max_drop: robust accuracy must be at most so many points below that of the baseline.
        confidence: percent: a pass is false, and so is a failure, with a probability of at most
            100 minus this.
        attack: only rows of this attack; empty takes all.
        goal: only attacks with this goal; None is untargeted, if the run has such attacks there.
    """
    asked = Gate.of(at, min_robust, max_drop, confidence=confidence, attack=attack, goal=goal)
    with ExitStack() as opened:
        return answer(_open(run, opened), asked, _open(baseline, opened) if baseline else None)


def _open(run: Run | str | Path, opened: ExitStack) -> Run:
    if isinstance(run, Run):
        return run
    found = Run.open(run)
    opened.enter_context(found.store)
    return found


def _whole(run: Run) -> Run:
    """With what other sessions have stored."""
    return Run(run.store, run.folder)


def answer(run: Run, asked: Gate, baseline: Run | None = None) -> Verdict:
    """The verdict on all that is stored of a run; see `gate`."""
    run, baseline = _whole(run), _whole(baseline) if baseline else None
    if (baseline is None) != (asked.max_drop is None):
        raise InputError("a drop needs both: the run to compare with, --baseline, and --max-drop")
    answers, cautions = [], _cautions(run, asked)
    for condition in asked.conditions:
        if condition.min_robust is not None:
            answers.append(_robust(run, asked, condition))
        elif baseline is not None:
            found, notes = _drop(run, baseline, asked, condition)
            answers.append(found)
            cautions += notes
    return Verdict(
        run=_name(run),
        victim=run.victim,
        data=run.data,
        baseline="" if baseline is None else _name(baseline),
        confidence=asked.confidence,
        answers=tuple(answers),
        cautions=tuple(dict.fromkeys(cautions)),
    )


def _robust(run: Run, asked: Gate, condition: Condition) -> Answer:
    settings = settings_at(asked, condition.at, run.settings, _name(run))
    found = fates(run, settings, condition.at)
    counts = Robust((condition.min_robust or 0) / 100, asked.alphas, found.in_turn)
    for fate in found.of.values():
        counts.add(fate)
        # what was decided stays so: the bounds hold at all times at once
        if found.in_turn and counts.result() != "undecided":
            break
    return _answer(condition, counts, settings)


def _drop(run: Run, baseline: Run, asked: Gate, condition: Condition) -> tuple[Answer, list[str]]:
    pairs, notes = _alike(run, baseline, asked, condition.at)
    ours = fates(run, [pair.ours for pair in pairs], condition.at)
    theirs = fates(baseline, [pair.theirs for pair in pairs], condition.at)
    both = _in_both(ours, theirs, run, baseline)
    unmatched = len(ours.of) - len(both), len(theirs.of) - len(both)
    if any(unmatched):
        notes.append(
            f"{len(both)} images are in both runs and count for the drop; {unmatched[0]} are only "
            f"in {_name(run)}, {unmatched[1]} only in {_name(baseline)}"
        )
    in_turn = ours.in_turn or theirs.in_turn
    counts = Drop((condition.max_drop or 0) / 100, asked.alphas, in_turn)
    for before, now in both:
        counts.add(before, now)
        if in_turn and counts.result() != "undecided":
            break
    return _answer(condition, counts, [pair.ours for pair in pairs]), notes


@dataclass(frozen=True)
class _Pair:
    """A setting of the run, and the same of the baseline."""

    ours: Setting
    theirs: Setting


def _alike(run: Run, baseline: Run, asked: Gate, at: At) -> tuple[list[_Pair], list[str]]:
    """Settings that both runs have: an attack that only one has met says nothing about a drop."""
    ours = {_which(one): one for one in settings_at(asked, at, run.settings, _name(run))}
    theirs = {
        _which(one): one for one in settings_at(asked, at, baseline.settings, _name(baseline))
    }
    pairs = [_Pair(one, theirs[key]) for key, one in ours.items() if key in theirs]
    if not pairs:
        raise InputError(
            f"{_name(run)} and {_name(baseline)} have no attack in common at {at} (same attack, "
            f"options, goal, pixels and seed): run both alike"
        )
    if at.queries is None and any(pair.ours.queries != pair.theirs.queries for pair in pairs):
        raise InputError(
            f"the query limits of {_name(run)} and {_name(baseline)} differ: say where to compare, "
            f"as in --at {at},{min(min(p.ours.queries, p.theirs.queries) for p in pairs)}q"
        )
    notes = [
        f"{one.title} is only in {_name(mine)}: left out of the comparison"
        for mine, own, others in ((run, ours, theirs), (baseline, theirs, ours))
        for key, one in own.items()
        if key not in others
    ]
    if run.data != baseline.data:
        notes.append(f"the data are called differently: {baseline.data} and {run.data}")
    return pairs, notes


def _which(setting: Setting) -> tuple[object, ...]:
    """What must be equal; not the query limit, of which ``--at`` takes a part."""
    return setting.attack, setting.goal, setting.pixels, setting.seed, setting.eot, setting.success


def _in_both(ours: Fates, theirs: Fates, run: Run, baseline: Run) -> list[tuple[Fate, Fate]]:
    """Fates in baseline and run of the images that both have, in the order of who stopped early."""
    order: list[Image] = list((ours if ours.in_turn else theirs).of)
    common = [image for image in order if image in ours.of and image in theirs.of]
    if not common:
        raise InputError(
            f"{_name(run)} and {_name(baseline)} have no image in common: run both on the same data"
        )
    if ours.in_turn and theirs.in_turn:
        first, second = (list(fates.of)[: len(common)] for fates in (ours, theirs))
        if first != second:
            raise InputError(
                f"{_name(run)} and {_name(baseline)} were stopped early on images in another "
                f"order: run both with the same data, limit and seed"
            )
    return [(theirs.of[image], ours.of[image]) for image in common]


def _answer(condition: Condition, counts: Robust | Drop, settings: Sequence[Setting]) -> Answer:
    result, (low, high) = counts.result(), counts.bounds()
    first, second = counts.counts
    return Answer(
        condition=condition,
        result=result,
        value=counts.value,
        low=low,
        high=high,
        images=counts.count,
        counts=(first, second),
        unknown=counts.unknown,
        in_turn=counts.in_turn,
        needed=counts.needed() if result == "undecided" else None,
        about=tuple(dict.fromkeys(setting.title for setting in settings)),
    )


def _cautions(run: Run, asked: Gate) -> list[str]:
    """What a reader of the verdict should know of the run."""
    about = {
        setting.number: setting
        for condition in asked.conditions
        for setting in settings_at(asked, condition.at, run.settings, _name(run))
    }
    said = [f"{topic}: {text}" for topic, text in run.warnings.items()]
    said += run.notes
    for setting in about.values():
        stored = len(run.stored(setting))
        if stored < setting.problems:
            said.append(
                f"{setting.title}: {stored} of {setting.problems} attacks are stored; the others "
                f"may have become anything"
            )
        said += [f"{setting.title}: {flag.text}" for flag in run.flags.get(setting, ())]
    return said


def _name(run: Run) -> str:
    return "the run" if run.folder is None else str(run.folder)
