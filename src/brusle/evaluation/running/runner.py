"""Run several attacks on one victim and one data set, and keep everything in a run folder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import brusle
from brusle.data.fit import check_fit
from brusle.errors import BrusleError, DataError, InputError
from brusle.evaluation.running.display import OnSetting, told
from brusle.evaluation.running.engines import Engine, Local, Recipe, Setting, Shard
from brusle.evaluation.running.first_look import look_first
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.running.provenance import provenance
from brusle.evaluation.running.starts import StartingImages
from brusle.evaluation.running.workload import Workload
from brusle.evaluation.storing.about import likeness
from brusle.evaluation.storing.export import write_folder
from brusle.evaluation.storing.pending import Pending
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import GoalName, Record, Row, Store
from brusle.oracle import Victim, traits
from brusle.session import Progress, check_needs, notes_on
from brusle.victims import default_batch_size
from brusle.victims.fingerprints import fingerprint, notes_on_weights

OnWarning = Callable[[str], None]


def run_plan(
    plan: Plan,
    out: str | Path | None = None,
    *,
    batch_size: int | None = None,
    device: str = "auto",
    timeout: float | None = None,
    engine: Engine | None = None,
    retry_errors: bool = False,
    on_progress: OnSetting | Literal["auto"] | None = "auto",
    on_warning: OnWarning | None = None,
) -> Run:
    """Do what a plan says; the arguments are those of `brusle.evaluate`."""
    began = time.monotonic()
    recipe = Recipe(plan.victim, device, plan.defences, timeout)
    model = recipe.open()
    settings = _settings(plan, model)
    work = Workload.of(plan, model)
    check_fit(work.source, work.shape, model)
    _check(settings, work, model)
    batch_size = batch_size or default_batch_size(work.shape, model.device)
    starting = StartingImages(work.source, model, plan.seeds[0], batch_size)
    folder = None if out is None else Path(out)
    if out == "auto":
        folder = plan.folder(model, work.manifest)
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
        look_first(store, model, work, left, plan.seeds[0], batch_size, on_warning)
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
            _write_out(run, folder)
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


def _write_out(run: Run, folder: Path) -> None:
    """What people look at first in a run folder, made from what is stored."""
    # here and not above: pictures read runs, and know who makes them as little as tables do
    from brusle.report.pictures import write_pictures

    write_folder(run, folder)
    write_pictures(run, folder)


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
        self._asked = asked = work.list_of(setting.goal).ids.tolist()
        attack = setting.attack
        description = {
            "attack": attack.label,
            "goal": setting.goal,
            "pixels": attack.pixels,
            "queries": attack.queries,
            "seed": setting.seed,
            "eot": setting.eot,
            "needs": attack.needs,
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
        return work.list_of(self.setting.goal).images[self.rows].tolist()


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
    plan: Plan,
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
        "plan": plan.model_dump(mode="json"),
        "pairs": work.manifest.digest,
        "provenance": provenance(victim.device),
    }
    store.note(
        now
        | {
            "like": likeness(victim),
            "shape": list(work.shape),
            "classes": [str(name) for name in work.source.classes],
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


def _settings(plan: Plan, victim: Victim) -> list[Setting]:
    """The attacks of a plan, each for its goal and with each seed."""
    settings = [
        Setting(attack, goal, seed, plan.eot)
        for goal, attacks in plan.attacks_on(victim).items()
        for attack in attacks
        for seed in plan.seeds
    ]
    if not settings:
        raise InputError("there is no attack to run: give attacks, goals and seeds")
    # what is asked for twice, perhaps in other words, is run once
    return list({setting.key: setting for setting in settings}.values())


def _wanted(work: Workload, goal: GoalName) -> list[tuple[int, str]]:
    """Id and name of every problem of a goal."""
    ids = work.list_of(goal).ids.tolist()
    return list(zip(ids, work.names(goal, range(len(ids))), strict=True))
