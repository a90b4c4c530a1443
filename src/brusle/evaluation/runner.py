"""Run several attacks on one victim and one data set, and keep everything in a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import brusle
from brusle.attacks import make
from brusle.attacks.base import AnyAttack
from brusle.errors import DataError, InputError, VictimUnavailable
from brusle.evaluation.engines import Engine, Local, Recipe, Setting, Shard
from brusle.evaluation.export import write_folder
from brusle.evaluation.pairs import Manifest, Targets
from brusle.evaluation.provenance import fingerprint, provenance
from brusle.evaluation.runs import Run
from brusle.evaluation.starts import StartingImages
from brusle.evaluation.store import GoalName, Record, Row, Store
from brusle.evaluation.workload import GOALS, Data, Workload, check_fit
from brusle.loop import Progress, check_needs, notes_on
from brusle.names import DEFAULT_ATTACKS
from brusle.oracle import Victim, traits
from brusle.victims import default_batch_size

DEFAULT_PIXELS: dict[GoalName, tuple[int, ...]] = {"untargeted": (2, 5), "targeted": (10, 20)}
Attacks = Sequence[AnyAttack] | Mapping[GoalName, Sequence[AnyAttack]]


def evaluate(
    victim: Any = "zoo:cifar10-resnet20",
    data: Data = "sample",
    attacks: Attacks | Callable[[Victim], Attacks] | None = None,
    goal: GoalName | Sequence[GoalName] = GOALS,
    out: str | Path | None = None,
    *,
    pairs: str | Path | Manifest | None = None,
    targets: Targets = 1,
    defences: Sequence[str] = (),
    limit: int | None = None,
    seed: int | Sequence[int] = 0,
    batch_size: int | None = None,
    eot: int = 1,
    device: str = "auto",
    engine: Engine | None = None,
    retry_errors: bool = False,
    on_progress: Callable[[Record, Progress], None] | None = None,
    plan: Mapping[str, Any] | None = None,
) -> Run:
    """Attack a victim on a data set and write a run folder.

    Args:
        victim: a name, an ``nn.Module`` that returns logits, or a victim.
        data: a name, a `Dataset`, a `Source`, or a pair of images and labels.
        attacks: attacks with their budgets, for each goal or for all, or a function of the victim
            that returns them; None is BruSLe and PixelBandit with the
            `DEFAULT_PIXELS` and 300 queries.
        goal: ``"untargeted"``, ``"targeted"``, or both.
        out: a folder for rows, summary and adversarial images; nothing is written if None. What
            it holds already is not run again: the same call goes on after an interruption, and
            other attacks, budgets, seeds or images are added. Results of another victim or of
            other data are refused.
        pairs: a manifest (or its file) of images and targets, instead of ``targets`` and
            ``limit``. It names its data itself, unless ``data`` is more than a name.
        targets: for a targeted goal, ``"all"`` other classes or so many random ones per image.
        defences: defences before the victim, as in ``["rnd:0.02"]``; the first is the innermost.
        limit: most images, evenly over the classes.
        seed: same seed, same result. With several, every attack runs once for each, on the same
            images, and targets are drawn with the first.
        batch_size: most images in one call of the victim; None chooses by image size.
        eot: answers of a randomised victim that are averaged for every candidate.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ...
        engine: who does the work: this process if None, or `brusle.Ray` for several.
        retry_errors: run errors and unverified results again that are stored. What failed for the
            victim's trouble (`brusle.trouble`) is run again in any case.
        on_progress: called after every round.
        plan: what was asked for, in the user's words, to be kept with the results.

    Raises:
        VictimUnavailable: the victim is in trouble that did not end. What is finished is stored.
    """
    began = time.monotonic()
    seeds = (seed,) if isinstance(seed, int) else tuple(seed)
    goals = (goal,) if isinstance(goal, str) else tuple(goal)
    recipe = Recipe(victim, device, tuple(defences))
    model = recipe.open()
    settings = _settings(attacks(model) if callable(attacks) else attacks, goals, seeds, eot)
    aims = targets if any(setting.goal == "targeted" for setting in settings) else 0
    work = Workload.of(data, pairs, aims, limit, seeds[0], model)
    check_fit(work.place, work.shape, model)
    _check(settings, work, model)
    batch_size = batch_size or default_batch_size(work.shape, model.device)
    starting = StartingImages(work.place, model, seeds[0], batch_size)
    folder = None if out is None else Path(out)
    engine = engine or Local()
    store = Store.memory() if folder is None else Store.write(folder)
    try:
        _introduce(store, model, work, settings, plan)
        todo = [_Todo(store, setting, work, retry_errors) for setting in settings]
        if folder is not None:
            work.manifest.write(folder / "pairs.json")

        def keep(shard: Shard, rows: list[Row]) -> None:
            store.add(shard.record.number, rows)

        watch = _Watch(todo, on_progress)
        shards = _shards(todo, work, starting, engine, batch_size)
        try:
            engine.run(recipe, model, shards, keep, watch)
        except VictimUnavailable as error:
            raise VictimUnavailable(f"{error}; {_kept(store, todo, folder)}") from error
        wanted = {setting.goal: _wanted(work, setting.goal) for setting in settings}
        records = [part.record for part in todo]
        run = Run(store, folder, records, wanted, work.originals)
        run.manifest = work.manifest
        run.resumed = sum(part.stored for part in todo)
        run.start_queries = starting.queries
        run.seconds = time.monotonic() - began
        if folder is not None:
            write_folder(run, folder)
        store.release()
    except BaseException:
        store.close()
        raise
    return run


def _check(settings: Sequence[Setting], work: Workload, victim: Victim) -> None:
    """Refuse now what one of the attacks would refuse when its turn comes."""
    for setting in settings:
        check_needs(setting.attack, victim)
        first = work.problems(setting.goal, [0])
        starts = first.images if setting.wants_start else None
        setting.attack.check(replace(first, starts=starts))


class _Todo:
    """The part of a setting that is not stored yet."""

    def __init__(
        self, store: Store, setting: Setting, work: Workload, retry_errors: bool = False
    ) -> None:
        self.setting = setting
        asked = work.asked(setting.goal).ids.tolist()
        self.problems = set(asked)
        attack = setting.attack
        key = f"{attack!r} {setting.goal} seed={setting.seed} eot={setting.eot}"
        description = {
            "attack": attack.label,
            "goal": setting.goal,
            "pixels": attack.pixels,
            "queries": attack.queries,
            "seed": setting.seed,
            "eot": setting.eot,
            "needs": attack.needs,
            "problems": len(set(asked)),
            "options": asdict(attack),  # type: ignore[call-overload]
        }
        self.record = store.setting(key, description)
        done = store.done(self.record.number, retry_errors)
        self.stored = sum(number in done for number in asked)
        first: dict[int, int] = {}
        for row, number in enumerate(asked):
            if number not in done:
                first.setdefault(number, row)
        self.rows = list(first.values())  # of equal problems, the first


def _kept(store: Store, todo: Sequence[_Todo], folder: Path | None) -> str:
    """What is left of a run that was ended."""
    if folder is None:
        return "nothing is kept without out="
    stored = sum(len(part.problems & store.done(part.record.number)) for part in todo)
    total = sum(len(part.problems) for part in todo)
    return f"{stored} of {total} attacks are stored, and the same command goes on"


def _shards(
    todo: Sequence[_Todo],
    work: Workload,
    starting: StartingImages,
    engine: Engine,
    batch_size: int,
) -> Iterator[Shard]:
    """What is to do; images are read when their shard is asked for."""
    number = 0
    for part in todo:
        size, goal = engine.shard_size(len(part.rows), batch_size), part.setting.goal
        for start in range(0, len(part.rows), size):
            rows = part.rows[start : start + size]
            problems = work.problems(goal, rows)
            if part.setting.wants_start:
                problems = replace(problems, starts=starting.choose(problems))
            names = tuple(work.names(goal, rows))
            yield Shard(number, part.record, part.setting, problems, names, batch_size)
            number += 1


class _Watch:
    """Adds the progress of shards up to that of their setting."""

    def __init__(
        self, todo: Sequence[_Todo], on_progress: Callable[[Record, Progress], None] | None
    ) -> None:
        self._on_progress = on_progress
        self._totals = {part.record: len(part.rows) for part in todo}
        self._shards: dict[Record, dict[int, Progress]] = {part.record: {} for part in todo}

    def __call__(self, shard: Shard, progress: Progress) -> None:
        """Called by the engine."""
        if self._on_progress is None:
            return
        record, total = shard.record, self._totals[shard.record]
        parts = self._shards[record]
        parts[shard.number] = progress
        begun = sum(part.total for part in parts.values())
        ahead = sum(part.remaining for part in parts.values())
        self._on_progress(
            record,
            Progress(
                finished=sum(part.finished for part in parts.values()),
                total=total,
                successes=sum(part.successes for part in parts.values()),
                queries=sum(part.queries for part in parts.values()),
                remaining=ahead + (total - begun) * record.queries,
            ),
        )


def _introduce(
    store: Store,
    victim: Victim,
    work: Workload,
    settings: Sequence[Setting],
    plan: Mapping[str, Any] | None,
) -> None:
    """Write down what this session is about; refuse it if results would mix."""
    before = store.about()
    now = {
        "brusle": brusle.__version__,
        "victim": victim.name,
        "weights": fingerprint(victim),
        "data": work.manifest.data,
    }
    for name, value in now.items():
        if before.get(name, value) != value:
            raise DataError(
                f"the run folder holds results of {name} {before[name]}, and this is {value}: "
                f"choose another --out"
            )
    store.know([(name, *facts) for name, facts in work.manifest.known.items()])
    notes = [note for setting in settings for note in notes_on(setting.attack, victim)]
    session = {
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "plan": dict(plan or {}),
        "pairs": work.manifest.digest,
        "provenance": provenance(victim.device),
    }
    store.note(
        now
        | {
            "shape": list(work.shape),
            "classes": list(work.place.classes),
            "randomised": traits(victim).randomised,
            "notes": list(dict.fromkeys([*before.get("notes", ()), *notes])),
            "sessions": [*before.get("sessions", ()), session],
        }
    )


def _settings(
    attacks: Attacks | None, goals: Sequence[GoalName], seeds: Sequence[int], eot: int
) -> list[Setting]:
    for goal in goals:
        if goal not in GOALS:
            raise InputError(f"goal is {goal!r}: choose from {', '.join(GOALS)}")
    if attacks is None:
        attacks = {
            g: [make(name, p, 300) for p in DEFAULT_PIXELS[g] for name in DEFAULT_ATTACKS]
            for g in goals
        }
    if not isinstance(attacks, Mapping):
        attacks = dict.fromkeys(goals, attacks)
    pairs = [(attack, goal) for goal in goals for attack in attacks.get(goal, ())]
    if not pairs or not seeds:
        raise InputError("there is no attack to run: give attacks, goals and seeds")
    return [Setting(attack, goal, seed, eot) for attack, goal in pairs for seed in seeds]


def _wanted(work: Workload, goal: GoalName) -> list[tuple[int, str]]:
    """Id and name of every problem of a goal."""
    ids = work.asked(goal).ids.tolist()
    return list(zip(ids, work.names(goal, range(len(ids))), strict=True))
