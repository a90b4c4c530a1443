"""Run several attacks on one victim and one data set, and keep everything in a run folder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import brusle
from brusle.attacks import make
from brusle.batching import default_batch_size
from brusle.errors import BrusleError, DataError, InputError
from brusle.evaluation.running.display import OnSetting, told
from brusle.evaluation.running.engines import Engine, Local, Recipe, Setting, Shard
from brusle.evaluation.running.first_look import look_first
from brusle.evaluation.running.provenance import fingerprint, notes_on_weights, provenance
from brusle.evaluation.running.starts import StartingImages
from brusle.evaluation.running.workload import GOALS, Data, Workload, check_fit
from brusle.evaluation.storing.about import likeness
from brusle.evaluation.storing.manifest import Manifest, Targets
from brusle.evaluation.storing.pending import Pending
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import GoalName, Record, Row, Store
from brusle.finishing import write_out
from brusle.names import DEFAULT_ATTACKS
from brusle.search import Attack
from brusle.session import Progress, check_needs, notes_on
from brusle.victim import Victim, traits

DEFAULT_PIXELS: dict[GoalName, tuple[int, ...]] = {"untargeted": (2, 5), "targeted": (10, 20)}
Attacks = Sequence[Attack] | Mapping[GoalName, Sequence[Attack]]


def evaluate(
    victim: Any = "zoo:cifar10-resnet20",
    data: Data = "sample",
    attacks: Attack | Attacks | Callable[[Victim], Attacks] | None = None,
    goal: GoalName | Sequence[GoalName] = GOALS,
    out: str | Path | Callable[[Victim, Manifest], Path] | None = None,
    *,
    pairs: str | Path | Manifest | None = None,
    targets: Targets = 1,
    defences: Sequence[str] = (),
    limit: int | None = None,
    seed: int | Sequence[int] = 0,
    batch_size: int | None = None,
    eot: int = 1,
    device: str = "auto",
    timeout: float | None = None,
    engine: Engine | None = None,
    retry_errors: bool = False,
    on_progress: OnSetting | Literal["auto"] | None = "auto",
    on_warning: Callable[[str], None] | None = None,
    plan: Mapping[str, Any] | None = None,
) -> Run:
    """Attack a victim on a data set and write a run folder.

    Args:
        victim: a name, an ``nn.Module`` that returns logits, or a victim.
        data: a name, a `Dataset`, a `Source`, or a pair of images and labels.
        attacks: an attack with its budgets or several, for each goal or for all, or a function of
            the victim that returns them; None is BruSLe and PixelBandit with the
            `DEFAULT_PIXELS` and 300 queries.
        goal: ``"untargeted"``, ``"targeted"``, or both.
        out: a folder for rows, summary, pictures and adversarial images; nothing is written if
            None. What it holds already is not run again: the same call goes on after an
            interruption, and other attacks, budgets, seeds or images are added. Results of
            another victim or of other data are refused. A function of the victim and of the
            images returns the folder.
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
        timeout: most seconds that one call of the victim may take (see `brusle.victims.timed`).
        engine: who does the work: this process if None, or `brusle.Ray` for several.
        retry_errors: run errors and unverified results again that are stored. What failed for the
            victim's trouble (`brusle.trouble`) is run again in any case.
        on_progress: called after every round with a setting and its `Progress`, which counts what
            is stored. ``"auto"`` draws bars on standard error if that is a terminal or a notebook.
        on_warning: called before the first attack, once for each thing that is plainly wrong with
            the victim (docs/check.md); None makes them Python warnings. They never stop a run, and
            are kept with it.
        plan: what was asked for, in the user's words, to be kept with the results.

    Raises:
        VictimUnavailable: the victim is in trouble that did not end. What is finished is stored.
    """
    began = time.monotonic()
    seeds = (seed,) if isinstance(seed, int) else tuple(seed)
    goals = (goal,) if isinstance(goal, str) else tuple(goal)
    recipe = Recipe(victim, device, tuple(defences), timeout)
    model = recipe.open()
    settings = _settings(_attacks(attacks, goals, model), seeds, eot)
    aims = targets if any(setting.goal == "targeted" for setting in settings) else 0
    work = Workload.of(data, pairs, aims, limit, seeds[0], model)
    check_fit(work.place, work.shape, model)
    _check(settings, work, model)
    batch_size = batch_size or default_batch_size(work.shape, model.device)
    starting = StartingImages(work.place, model, seeds[0], batch_size)
    place = out(model, work.manifest) if callable(out) else out
    folder = None if place is None else Path(place)
    engine = engine or Local()
    store = Store.memory() if folder is None else Store.write(folder)
    todo: list[_Todo] = []
    pending: Pending | None = None
    try:
        _introduce(store, model, work, settings, plan)
        if folder is not None and engine.remembers:
            pending = Pending(folder, f"{brusle.__version__} {model.name} {fingerprint(model)}")
        todo = [_Todo(store, setting, work, retry_errors) for setting in settings]
        if folder is not None:
            work.manifest.write(folder / "pairs.json")
        left = [image for part in todo for image in part.images(work)]
        look_first(store, model, work, left, seeds[0], batch_size, on_warning)
        with told(on_progress) as tell:
            watch = _Watch(todo, tell)

            def keep(shard: Shard, rows: list[Row]) -> None:
                store.add(shard.record.number, rows)
                if pending is not None:
                    pending.forget(shard.setting.key, [row.problem for row in rows])
                watch.keep(shard, rows)

            shards = _shards(todo, work, starting, engine, batch_size, pending, model)
            engine.run(recipe, model, shards, keep, watch)
        _note_other_weights(store, model)
        wanted = {setting.goal: _wanted(work, setting.goal) for setting in settings}
        records = [part.record for part in todo]
        run = Run(store, folder, records, wanted, work.originals)
        run.manifest = work.manifest
        run.resumed = sum(part.stored for part in todo)
        run.start_queries = starting.queries
        run.seconds = time.monotonic() - began
        if folder is not None:
            write_out(run, folder)
        if pending is not None:
            pending.close()
        store.release()
    except BaseException as error:
        if pending is not None:
            pending.close()
        if folder is not None and todo:
            with suppress(BrusleError):  # the store itself may be what has failed
                total = sum(part.record.problems for part in todo)
                stored = sum(part.count(store) for part in todo)
                error.add_note(f"{stored} of {total} attacks are stored in {folder}")
        store.close()
        raise
    return run


def _check(settings: Sequence[Setting], work: Workload, victim: Victim) -> None:
    """Refuse now what one of the attacks would refuse when its turn comes."""
    for setting in settings:
        check_needs(setting.attack, victim, setting.eot)
        first = work.problems(setting.goal, [0])
        starts = first.images if setting.wants_start else None
        setting.attack.check(replace(first, starts=starts))


class _Todo:
    """The part of a setting that is not stored yet."""

    def __init__(
        self, store: Store, setting: Setting, work: Workload, retry_errors: bool = False
    ) -> None:
        self.setting = setting
        self._asked = asked = work.asked(setting.goal).ids.tolist()
        attack = setting.attack
        description = {
            "attack": attack.label,
            "goal": setting.goal,
            "pixels": attack.pixels,
            "queries": attack.queries,
            "seed": setting.seed,
            "eot": setting.eot,
            "needs": attack.behaviour.needs,
            "problems": len(asked),
            "options": asdict(attack),  # type: ignore[call-overload]
        }
        self.record = store.setting(setting.key, description)
        done = store.done(self.record.number, retry_errors)
        self.rows = [row for row, number in enumerate(asked) if number not in done]
        self.stored = len(asked) - len(self.rows)
        self.fooled = sum(done.get(number) == "success" for number in asked)

    def count(self, store: Store) -> int:
        """How many of the problems are stored by now."""
        done = store.done(self.record.number)
        return sum(number in done for number in self._asked)

    def in_turn(self, pending: Pending | None) -> tuple[list[int], list[int]]:
        """What is left: problems that were interrupted, the most answered first; and the others."""
        answers = Counter[int]() if pending is None else pending.counts(self.setting.key)
        begun = [row for row in self.rows if answers[self._asked[row]]]
        begun.sort(key=lambda row: -answers[self._asked[row]])
        if pending is not None:  # a kill may have come between a row and this
            pending.forget(self.setting.key, answers.keys() - {self._asked[row] for row in begun})
        return begun, [row for row in self.rows if not answers[self._asked[row]]]

    def images(self, work: Workload) -> list[int]:
        """Which images of the manifest are left."""
        return work.asked(self.setting.goal).images[self.rows].tolist()


def _shards(
    todo: Sequence[_Todo],
    work: Workload,
    starting: StartingImages,
    engine: Engine,
    batch_size: int,
    pending: Pending | None,
    victim: Victim,
) -> Iterator[Shard]:
    """What is to do; images are read when their shard is asked for."""
    number = 0
    for part in todo:
        setting, size = part.setting, engine.shard_size(len(part.rows), batch_size)
        for rows in _portions(*part.in_turn(pending), size, batch_size):
            problems = work.problems(setting.goal, rows)
            if setting.wants_start:
                problems = replace(problems, starts=starting.choose(problems))
            names = tuple(work.names(setting.goal, rows))
            shard = Shard(number, part.record, setting, problems, names, batch_size)
            if pending is not None:
                ids, randomised = problems.ids.tolist(), traits(victim).randomised
                shard = replace(shard, memory=pending.of(setting.key, ids, randomised))
            yield shard
            number += 1


def _portions(
    begun: Sequence[int], others: Sequence[int], size: int, batch_size: int
) -> Iterator[Sequence[int]]:
    """``size`` at a time; first what was ``begun`` and interrupted, a few at a time.

    A run that is killed again and again gets ahead only if what it has begun ends in between, and a
    few attacks end sooner than many. Each portion is twice the one before: little time is lost.
    """
    few = max(1, batch_size // 16)
    while begun:
        some = min(few, size)
        yield begun[:some]
        begun, few = begun[some:], 2 * few
    for start in range(0, len(others), size):
        yield others[start : start + size]


class _Watch:
    """Adds the progress of shards up to that of their setting.

    Problems are shown as finished when they are stored, not when their search has ended: what was
    shown is on the disk.
    """

    def __init__(self, todo: Sequence[_Todo], on_progress: OnSetting | None) -> None:
        self._on_progress = on_progress
        self._todo = {part.record: part for part in todo}
        self._shards: dict[Record, dict[int, Progress]] = {part.record: {} for part in todo}
        self._stored = Counter({part.record: part.stored for part in todo})
        self._fooled = Counter({part.record: part.fooled for part in todo})
        self._left: dict[int, int] = {}  # of a shard, what is not stored yet

    def keep(self, shard: Shard, rows: list[Row]) -> None:
        """Rows have been stored."""
        record = shard.record
        self._stored[record] += len(rows)
        self._fooled[record] += sum(row.status == "success" for row in rows)
        self._left[shard.number] = self._left.get(shard.number, len(shard)) - len(rows)
        # where no image could be attacked, no round was reported
        parts = self._shards[record]
        part = parts.setdefault(shard.number, Progress(0, len(shard), 0, 0, 0))
        if not self._left[shard.number]:
            parts[shard.number] = replace(part, remaining=0)  # a search may end before its limit
        self._tell(record)

    def __call__(self, shard: Shard, progress: Progress) -> None:
        """Called by the engine."""
        self._shards[shard.record][shard.number] = progress
        self._tell(shard.record)

    def _tell(self, record: Record) -> None:
        if self._on_progress is None:
            return
        parts = self._shards[record].values()
        ahead = len(self._todo[record].rows) - sum(part.total for part in parts)
        self._on_progress(
            record,
            Progress(
                finished=self._stored[record],
                total=record.problems,
                successes=self._fooled[record],
                queries=sum(part.queries for part in parts),
                remaining=sum(part.remaining for part in parts) + ahead * record.queries,
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
    notes += notes_on_weights(now["weights"])
    session = {
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "plan": dict(plan or {}),
        "pairs": work.manifest.digest,
        "provenance": provenance(victim.device),
    }
    store.note(
        now
        | {
            "like": likeness(victim),
            "shape": list(work.shape),
            "classes": [str(name) for name in work.place.classes],
            "randomised": bool(traits(victim).randomised),
            "notes": list(dict.fromkeys([*before.get("notes", ()), *notes])),
            "sessions": [*before.get("sessions", ()), session],
        }
    )


def _note_other_weights(store: Store, victim: Victim) -> None:
    """A module that learns while it answers is another one in the end."""
    about = store.about()
    if fingerprint(victim) == about["weights"]:
        return
    note = (
        f"the weights of {victim.name} changed while it was attacked: rows are of different "
        f"weights, and another order or batch size may give others"
    )
    store.note({"notes": list(dict.fromkeys([*about["notes"], note]))})


def _attacks(
    given: Any, goals: Sequence[GoalName], victim: Victim
) -> list[tuple[Attack, GoalName]]:
    """What a user gives as ``attacks``, each with its goal."""
    for goal in goals:
        if goal not in GOALS:
            raise InputError(f"goal is {goal!r}: choose from {', '.join(GOALS)}")
    if callable(given) and not _is_attack(given) and not isinstance(given, type):
        given = given(victim)
    if given is None:
        given = {
            g: [make(name, p, 300) for p in DEFAULT_PIXELS[g] for name in DEFAULT_ATTACKS]
            for g in goals
        }
    by_goal = given if isinstance(given, Mapping) else dict.fromkeys(goals, given)
    pairs = [(attack, g) for g in goals for attack in _several(by_goal.get(g, ()))]
    for attack, _ in pairs:
        if not _is_attack(attack):
            raise InputError(
                f"{attack!r} is no attack: give attacks with their budgets, as in "
                f"brusle.attacks.BruSLe(pixels=20, queries=500)"
            )
    return pairs


def _is_attack(thing: object) -> bool:
    return hasattr(thing, "conduct") and not isinstance(thing, type)


def _several(attacks: Any) -> Sequence[Any]:
    return attacks if isinstance(attacks, Sequence) and not isinstance(attacks, str) else [attacks]


def _settings(
    attacks: Sequence[tuple[Attack, GoalName]], seeds: Sequence[int], eot: int
) -> list[Setting]:
    if not attacks or not seeds:
        raise InputError("there is no attack to run: give attacks, goals and seeds")
    settings = [Setting(attack, goal, seed, eot) for attack, goal in attacks for seed in seeds]
    # what is asked for twice, perhaps in other words, is run once
    return list({setting.key: setting for setting in settings}.values())


def _wanted(work: Workload, goal: GoalName) -> list[tuple[int, str]]:
    """Id and name of every problem of a goal."""
    ids = work.asked(goal).ids.tolist()
    return list(zip(ids, work.names(goal, range(len(ids))), strict=True))
