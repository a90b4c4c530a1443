"""`brusle.evaluate`: a plan in keywords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from brusle import defaults
from brusle.data import Data
from brusle.errors import InputError
from brusle.evaluation.gating.questions import Gate
from brusle.evaluation.record import GoalName
from brusle.evaluation.running.display import OnSetting
from brusle.evaluation.running.engines import Engine
from brusle.evaluation.running.first_look import OnWarning
from brusle.evaluation.running.plan import Plan, is_attack
from brusle.evaluation.running.runner import run_plan
from brusle.evaluation.storing.manifest import Manifest, Targets
from brusle.evaluation.storing.runs import Run
from brusle.outcomes import Success
from brusle.search import Attack
from brusle.terms import Terms

Attacks = Sequence[Attack] | Mapping[GoalName, Sequence[Attack]]


def evaluate(
    victim: Any = defaults.VICTIM,
    data: Data = defaults.DATA,
    attacks: Attack | Attacks | None = None,
    goal: GoalName | Sequence[GoalName] = defaults.GOALS,
    out: str | Path | None = None,
    *,
    pairs: str | Path | Manifest | None = None,
    targets: Targets = defaults.TARGETS,
    defences: Sequence[str] = (),
    limit: int | None = None,
    seed: int | Sequence[int] = 0,
    eot: int = 1,
    success: Success = "top1",
    batch_size: int | None = None,
    device: str = "auto",
    timeout: float | None = None,
    terms: Terms | None = None,
    record: bool = False,
    replay: str | Path | None = None,
    engine: Engine | None = None,
    retry_errors: bool = False,
    trace: bool = False,
    log: str | Sequence[str] = (),
    until: Gate | None = None,
    on_progress: OnSetting | Literal["auto"] | None = "auto",
    on_warning: OnWarning | None = None,
) -> Run:
    """Attack a victim on a data set and write a run folder.

    Args:
        victim: a name, an ``nn.Module`` that returns logits, or a victim. Or a whole `Plan`, which
            says everything up to ``eot`` but ``out``: these are left out then.
        data: a name, a `Dataset`, a `Source`, or a pair of images and labels.
        attacks: an attack with its budgets or several, for each goal or for all; None is BruSLe
            and PixelBandit with the budgets in `brusle.defaults`.
        goal: ``"untargeted"``, ``"targeted"``, or both.
        out: a folder for rows, summary, pictures and adversarial images; nothing is written if
            None. What it holds already is not run again: the same call goes on after an
            interruption, and other attacks, budgets, seeds or images are added. Results of
            another victim or of other data are refused. ``"auto"`` is a folder in ``runs`` whose
            name follows from plan, images and weights.
        pairs: a manifest (or its file) of images and targets, instead of ``targets`` and
            ``limit``. It names its data itself, unless ``data`` is more than a name.
        targets: for a targeted goal, ``"all"`` other classes or so many random ones per image.
        defences: defences before the victim, as in ``["rnd:0.02"]``; the first is the innermost.
        limit: most images, evenly over the classes; None takes all.
        seed: same seed, same result. With several, every attack runs once for each, on the same
            images, and targets are drawn with the first.
        eot: answers of a randomised victim that are averaged for every candidate.
        success: what counts as one where the victim gives lists of labels: ``"top1"``, ``"absent"``
            or ``"new"``; see `brusle.goals.Goal`.
        batch_size: most images in one call of the victim; None chooses by image size.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        timeout: most seconds that one call of the victim may take (see `brusle.victims.timed`).
        terms: on which terms a service is asked: rate, price, budget, ... (`brusle.Terms`).
        record: keep every answer in ``out``, in a journal, so that nothing is ever asked twice.
            The answers of services are always kept.
        replay: a run folder, or its ``journal.sqlite``: the victim is not opened, and answers come
            from there alone.
        engine: who does the work: this process if None, or `brusle.Ray` for several.
        retry_errors: run errors and unverified results again that are stored. What failed for the
            victim's trouble (`brusle.trouble`) is run again in any case.
        trace: also store what each search finds on its way (`Run.trace`), a few kilobytes each, of
            the attacks that this call runs.
        log: experiment trackers, as in ``["mlflow:FOLDER", "tensorboard"]`` (docs/tracking.md). All
            that is stored is written to them when the run ends, also by an error or Ctrl-C; a
            tracker that fails is a warning, and the run goes on.
        until: attack images in a random order, and only until this gate is decided; ``limit`` is
            the most. Ask for the verdict with `brusle.evaluation.gate`.
        on_progress: called after every round with a setting and its `Progress`, which counts what
            is stored. ``"auto"`` draws bars on standard error if that is a terminal or a notebook.
        on_warning: called before the first attack, once for each thing that is plainly wrong with
            the victim (docs/check.md); None makes them Python warnings. They never stop a run, and
            are kept with it.

    Raises:
        VictimUnavailable: the victim is in trouble that did not end. What is finished is stored.
    """
    values: dict[str, Any] = {
        "data": tuple(data) if isinstance(data, list) else data,
        "goals": goal,
        "pairs": pairs,
        "targets": targets,
        "defences": tuple(defences),
        "limit": limit,
        "seeds": seed,
        "eot": eot,
        "success": success,
    }
    if attacks is not None:
        _require_budgets(attacks)
        values["attacks"] = attacks
    return run_plan(
        _plan(victim, values),
        out,
        batch_size=batch_size,
        device=device,
        timeout=timeout,
        terms=terms,
        record=record,
        replay=replay,
        engine=engine,
        retry_errors=retry_errors,
        trace=trace,
        log=log,
        until=until,
        on_progress=on_progress,
        on_warning=on_warning,
    )


def _plan(victim: Any, values: Mapping[str, Any]) -> Plan:
    """The plan that is given, or that the other values make."""
    if not isinstance(victim, Plan):
        return Plan.of({"victim": victim, **values}, "evaluate")
    if Plan.of(values, "evaluate") != Plan(limit=None):
        raise InputError("a plan says what to evaluate: leave data, attacks, goal, ... out")
    return victim


def _require_budgets(attacks: Any) -> None:
    """Raise unless these are attacks; a name would not say how many pixels and queries it has."""
    goals = attacks.values() if isinstance(attacks, Mapping) else [attacks]
    for mine in goals:
        several = mine if isinstance(mine, Sequence) and not isinstance(mine, str) else [mine]
        for attack in several:
            if not is_attack(attack):
                raise InputError(
                    f"{attack!r} is no attack: give attacks with their budgets, as in "
                    f"brusle.attacks.BruSLe(pixels=20, queries=500)"
                )
