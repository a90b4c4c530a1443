"""Do what a plan says: attack one victim on one data set, and keep everything in a run folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from brusle.batching import default_batch_size
from brusle.data.fit import check_fit
from brusle.errors import BrusleError, InputError
from brusle.evaluation.gating.questions import Gate
from brusle.evaluation.record import GoalName, Setting
from brusle.evaluation.running.concurrent import Concurrent
from brusle.evaluation.running.deciding import Deciding, check_until, require_alike
from brusle.evaluation.running.display import OnSetting, told
from brusle.evaluation.running.engines import Engine, Local
from brusle.evaluation.running.first_look import OnWarning, look_first, warn
from brusle.evaluation.running.introduction import introduce, note_changed_weights
from brusle.evaluation.running.journalling import journalled, share_vocabulary
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.running.recorder import Recorder
from brusle.evaluation.running.shards import ShardSupply, Unfinished
from brusle.evaluation.running.starts import StartingImages
from brusle.evaluation.running.tracked import logged
from brusle.evaluation.running.victim import VictimSpec, terms_of
from brusle.evaluation.running.workload import Workload
from brusle.evaluation.storing.pending import Pending
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Store
from brusle.finishing import open_trackers, write_out
from brusle.search import Attack
from brusle.session import check_needs, check_success
from brusle.terms import Terms
from brusle.version import RESULTS
from brusle.victim import Victim, traits
from brusle.victims import recorded
from brusle.victims.fingerprints import fingerprint
from brusle.victims.recording import Recorded


def run_plan(
    plan: Plan,
    out: str | Path | None = None,
    *,
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
    """Do what ``plan`` says; the other arguments are those of `brusle.evaluate`."""
    began = time.monotonic()
    trackers = open_trackers(log)  # before any query: a package may be missing
    spec = VictimSpec(plan.victim, device, plan.defences, timeout, terms)
    victim = spec.open() if replay is None else recorded(None, replay, replay=True)
    engine = _engine_for(victim, engine)
    settings = plan_settings(plan, victim)
    workload = Workload.of(plan, victim)
    _check(settings, workload, victim)
    if until is not None:
        check_until(until, [setting for setting, _ in settings])
    folder = run_folder(out, plan, victim, workload, replay is not None, until is not None)
    batch_size = batch_size or default_batch_size(workload.shape, victim.device)
    on_warning = on_warning or warn

    store = Store.memory() if folder is None else Store.write(folder)
    with _closed_on_failure(store), ExitStack() as books:
        if folder is not None and replay is None and (record or terms_of(victim) is not None):
            victim = books.enter_context(journalled(victim, folder, store, on_warning))
        share_vocabulary(victim, store, workload.source)
        starting = StartingImages(workload.source, victim, plan.seeds[0], batch_size)
        require_alike(store, until)
        attacks, told_until = [attack for _, attack in settings], until.told() if until else ()
        introduce(store, plan, victim, attacks, workload, told_until)
        unfinished = [Unfinished.of(store, *pair, workload, retry_errors) for pair in settings]
        with _counted_on_failure(store, unfinished, folder), _pending(folder, victim) as pending:
            if folder is not None:
                workload.manifest.write(folder / "pairs.json")
            parts = None
            if until is not None:
                parts = Deciding(until, store, workload, unfinished, plan.seeds[0])
            images = [image for left in unfinished for image in left.images(workload)]
            if parts is not None and parts.is_over:
                images = []
            look_first(store, victim, workload, images, plan.seeds[0], batch_size, on_warning)
            source = (unfinished, workload, starting)
            supply = ShardSupply(spec, victim, *source, batch_size, pending, trace, parts)
            everything = Run(store, folder, originals=workload.originals)
            with logged(trackers, everything, on_warning) as said:
                with told(on_progress) as tell:
                    recorder = Recorder(store, unfinished, pending, tell, traits(victim).vocabulary)
                    engine.run(supply, recorder)
                note_changed_weights(store, victim)
                books.close()  # before anybody reads what it cost
                run = _run(store, folder, unfinished, workload)
                run.start_queries, run.seconds = starting.queries, time.monotonic() - began
                run.logged = said
                if folder is not None:
                    write_out(run, folder)
        store.release()
    return run


def plan_settings(plan: Plan, victim: Victim) -> list[tuple[Setting, Attack]]:
    """The attacks of a plan, each for its goal and with each seed."""
    settings = [
        (Setting.of(attack, goal, seed, plan.eot, success=plan.success), attack)
        for goal, attacks in plan.attacks_on(victim).items()
        for attack in attacks
        for seed in plan.seeds
    ]
    if not settings:
        raise InputError("there is no attack to run: give attacks, goals and seeds")
    # what is asked for twice, perhaps in other words, is run once
    return list({setting.key: (setting, attack) for setting, attack in settings}.values())


def _check(settings: Sequence[tuple[Setting, Attack]], workload: Workload, victim: Victim) -> None:
    """Refuse now what one of the attacks would refuse when its turn comes."""
    check_fit(workload.source, workload.shape, victim)
    for setting, attack in settings:
        check_needs(attack, victim, setting.eot)
        check_success(setting.success, attack, victim, setting.goal == "targeted")
        first = workload.problems(setting.goal, [0])
        starts = first.images if attack.wants_start(setting.goal == "targeted") else None
        attack.check(replace(first, starts=starts))


def run_folder(
    out: str | Path | None,
    plan: Plan,
    victim: Victim,
    workload: Workload,
    replayed: bool = False,
    until: bool = False,
) -> Path | None:
    """Where results go; None if nowhere."""
    if out == "auto":
        folder = plan.folder(victim, workload.manifest)
        return folder.with_name(folder.name + "-until" * until + "-replay" * replayed)
    return None if out is None else Path(out)


def _engine_for(victim: Victim, engine: Engine | None) -> Engine:
    """The engine that was asked for, or the one that suits the victim."""
    if traits(victim).concurrency == 1:
        return engine or Local()
    if engine is not None:
        raise InputError(
            f"{victim.name} is asked by one process, which keeps its limits: leave out --workers "
            f"and --address, and say with --concurrency how many calls may be under way"
        )
    return Concurrent()


@contextmanager
def _closed_on_failure(store: Store) -> Iterator[None]:
    try:
        yield
    except BaseException:
        store.close()
        raise


@contextmanager
def _counted_on_failure(
    store: Store, unfinished: Sequence[Unfinished], folder: Path | None
) -> Iterator[None]:
    """What ends a run is told how much of it is stored."""
    try:
        yield
    except BaseException as error:
        with suppress(BrusleError):  # the store itself may be what has failed
            if folder is not None:
                total = sum(left.setting.problems for left in unfinished)
                stored = sum(left.stored_now(store) for left in unfinished)
                error.add_note(f"{stored} of {total} attacks are stored in {folder}")
        raise


@contextmanager
def _pending(folder: Path | None, victim: Victim) -> Iterator[Pending | None]:
    """The answers that a run folder keeps of attacks that are not finished.

    A journal has all answers, and needs no second one.
    """
    if folder is None or isinstance(victim, Recorded):
        yield None
        return
    pending = Pending(folder, f"{RESULTS} {victim.name} {fingerprint(victim)}")
    try:
        yield pending
    finally:
        pending.close()


def _run(
    store: Store, folder: Path | None, unfinished: Sequence[Unfinished], workload: Workload
) -> Run:
    """The run with the settings and images that were asked for."""
    stored = {setting.number: setting for setting in store.settings()}
    settings = [stored[left.setting.number] for left in unfinished]
    wanted = {setting.goal: _wanted(workload, setting.goal) for setting in settings}
    if in_turn := set(store.sequence()):
        wanted = {
            goal: [pair for pair in pairs if pair[1] in in_turn] for goal, pairs in wanted.items()
        }
    run = Run(store, folder, settings, wanted, workload.originals)
    run.manifest = workload.manifest
    run.resumed = sum(left.stored for left in unfinished)
    return run


def _wanted(workload: Workload, goal: GoalName) -> list[tuple[int, str]]:
    """Id and name of every problem of a goal."""
    ids = workload.list_of(goal).ids.tolist()
    return list(zip(ids, workload.names(goal, range(len(ids))), strict=True))
