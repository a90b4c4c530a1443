"""Evaluations on several processes or machines, by Ray (Moritz et al., OSDI 2018).

Shards are Ray tasks. A worker opens the victim once and keeps it; rows stream back to the process
that called, which alone writes to the store. When a worker or a whole machine dies, what it had not
delivered is given to another: no attack is counted twice, and none that was stored is asked again.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import torch

import brusle
from brusle.errors import BrusleError, InputError, VictimError, VictimUnavailable
from brusle.evaluation.engines import OnProgress, OnRows, Recipe, Shard, attack
from brusle.evaluation.provenance import fingerprint
from brusle.evaluation.store import Row
from brusle.loop import Progress
from brusle.oracle import Victim

if TYPE_CHECKING:
    from types import ModuleType

_TRIES = 3  # of a shard without a single new row, before it is given up
_SHARDS = 2  # for each worker and setting: more wait less for the last, fewer have fuller batches


@dataclass(frozen=True)
class Ray:
    """Several processes on this machine, or a cluster; the rows are those of a `brusle.Local` run.

    Attributes:
        workers: how many processes work at once, each with one core (or one GPU); None takes
            every core that there is.
        address: of a running cluster to join, as in ``"auto"`` or ``"10.0.0.5:6379"``; None starts
            one on this machine and stops it afterwards. Its machines need brusle, of the same
            version, and a victim that is given by name must be found under that name there.
    """

    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers is {self.workers}: it must be at least 1")

    @property
    def remembers(self) -> bool:
        """They are not."""
        return False

    def shard_size(self, problems: int, batch_size: int) -> int:
        """A few batches, or less, so that all workers have something to do until the end."""
        workers = self.workers or os.cpu_count() or 1
        return max(1, min(2 * batch_size, -(-problems // (_SHARDS * workers))))

    def run(
        self,
        recipe: Recipe,
        victim: Victim,
        shards: Iterable[Shard],
        on_rows: OnRows,
        on_progress: OnProgress,
    ) -> None:
        """All shards, several at a time."""
        ray = _import()
        began = not ray.is_initialized()
        if began:
            _start(ray, self)
        try:
            order = _Order(uuid.uuid4().hex, recipe, fingerprint(victim), brusle.__version__)
            gpus = 1 if victim.device.type == "cuda" else 0
            _Crew(ray, order, self.workers, gpus, on_rows, on_progress).work(iter(shards))
        finally:
            if began:
                ray.shutdown()


@dataclass(frozen=True)
class _Order:
    """What every worker must know.

    Attributes:
        token: tells this evaluation from others that a worker may have served.
        recipe: how to open the victim.
        weights: what `fingerprint` must say of it.
        version: of brusle.
    """

    token: str
    recipe: Recipe
    weights: str
    version: str


@dataclass
class _Task:
    """A shard at work.

    Attributes:
        shard: the whole shard.
        done: ids of its problems that are stored.
        tries: how often it was begun since the last row came.
        progress: how far it is.
    """

    shard: Shard
    done: set[int] = field(default_factory=set)
    tries: int = 0
    progress: Progress = field(default_factory=lambda: Progress(0, 0, 0, 0, 0))

    @property
    def rest(self) -> Shard:
        return self.shard.without(self.done)

    def take(self, rows: list[Row]) -> None:
        """Rows have been stored."""
        self.tries = 0
        self.done |= {row.problem for row in rows}
        count, limit = len(self.shard), self.shard.record.queries
        self.progress = Progress(
            finished=len(self.done),
            total=count,
            successes=self.progress.successes + sum(row.status == "success" for row in rows),
            queries=self.progress.queries + sum(row.queries for row in rows),
            remaining=(count - len(self.done)) * limit,
        )


class _Crew:
    """Hands out shards and collects rows."""

    def __init__(
        self,
        ray: ModuleType,
        order: _Order,
        workers: int | None,
        gpus: int,
        on_rows: OnRows,
        on_progress: OnProgress,
    ) -> None:
        self._ray, self._workers = ray, workers
        self._on_rows, self._on_progress = on_rows, on_progress
        self._order = ray.put(order)
        # our own retries know what is stored already, Ray's do not
        self._remote = ray.remote(
            num_cpus=1,
            num_gpus=gpus,
            max_retries=0,
            num_returns="streaming",
            scheduling_strategy="SPREAD",
        )(_work)
        self._trouble: VictimUnavailable | None = None
        self._again: deque[_Task] = deque()
        self._busy: dict[Any, _Task] = {}

    def work(self, shards: Iterator[Shard]) -> None:
        """Until everything is stored; or the victim is in trouble, and what was begun is stored."""
        try:
            while self._hand_out(shards):
                ready, _ = self._ray.wait(list(self._busy), num_returns=1, fetch_local=False)
                try:
                    self._collect(ready[0])
                except VictimUnavailable as trouble:
                    self._busy.pop(ready[0], None)
                    self._trouble = self._trouble or trouble
        finally:
            for stream in self._busy:
                self._ray.cancel(stream, force=True)
        if self._trouble is not None:
            raise self._trouble

    def _hand_out(self, shards: Iterator[Shard]) -> bool:
        """Keep all workers busy, and no more in memory than that; whether there is work left."""
        # machines may come and go; one task more than cores waits where it will be done
        places = self._workers or 1 + int(self._ray.cluster_resources().get("CPU", 1))
        while len(self._busy) < places and self._trouble is None:
            task = self._again.popleft() if self._again else None
            if task is None:
                try:
                    shard = next(shards, None)
                except VictimUnavailable as trouble:  # while it was asked for starting images
                    self._trouble = trouble
                    break
                if shard is None:
                    break
                task = _Task(shard)
            task.tries += 1
            self._busy[self._remote.remote(self._order, task.rest)] = task
        return bool(self._busy)

    def _collect(self, stream: Any) -> None:
        """Store the next rows of a worker, or see to it that another does its work."""
        task, errors = self._busy[stream], self._ray.exceptions
        try:
            rows = self._ray.get(next(stream))
        except StopIteration:
            del self._busy[stream]
            return
        except errors.RayTaskError as error:
            raise _plain(error) from error
        except errors.RayError as error:
            del self._busy[stream]
            self._retry(task, error)
            return
        self._on_rows(task.shard, rows)
        task.take(rows)
        self._on_progress(task.shard, task.progress)

    def _retry(self, task: _Task, error: Exception) -> None:
        if len(task.done) == len(task.shard):
            return
        if task.tries >= _TRIES:
            reason = str(error).strip().splitlines()[0]
            raise VictimUnavailable(
                f"a worker died {_TRIES} times on the same {len(task.rest)} images ({reason}): if "
                f"it ran out of memory, give a smaller --batch-size or fewer --workers"
            ) from error
        self._again.append(task)


_OPEN: dict[str, Victim] = {}  # in a worker: the victim of the evaluation it serves


def _work(order: _Order, shard: Shard) -> Iterator[list[Row]]:
    """In a worker: attack a shard, and hand over rows as they become final."""
    victim = _victim(order)
    queue: SimpleQueue[list[Row] | BaseException | None] = SimpleQueue()
    job = threading.Thread(target=_fill, args=(queue.put, victim, shard), daemon=True)
    job.start()
    while (item := queue.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


def _fill(
    put: Callable[[list[Row] | BaseException | None], None], victim: Victim, shard: Shard
) -> None:
    try:
        attack(victim, shard, put)
    except BaseException as error:
        put(error)
    put(None)


def _victim(order: _Order) -> Victim:
    if order.version != brusle.__version__:
        raise InputError(
            f"a worker has brusle {brusle.__version__}, this is {order.version}: install the same "
            f"version on all machines"
        )
    if order.token not in _OPEN:
        torch.set_num_threads(1)  # a worker has one core
        _OPEN.clear()
        victim = order.recipe.open()
        if fingerprint(victim) != order.weights:
            raise InputError(
                f"{victim.name} has other weights on a worker's machine: copy the same files there"
            )
        _OPEN[order.token] = victim
    return _OPEN[order.token]


def _plain(error: Any) -> BaseException:
    """The error of a worker without Ray's account of it."""
    cause = error.cause
    if isinstance(cause, BrusleError):
        return cause
    lines = str(cause).splitlines() or [""]
    hint = ": what the victim is made of must be installed on all machines"
    return VictimError(f"a worker failed: {lines[0]}{hint if 'No module' in lines[0] else ''}")


def _import() -> ModuleType:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError(
            'several workers need Ray, which is not installed: pip install "brusle[ray]"'
        ) from error
    return ray


def _start(ray: ModuleType, engine: Ray) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # whom it tests is nobody's business
    options: dict[str, Any] = {"address": engine.address}
    if engine.address is None:
        # a victim made in Python is found where this process finds it
        path = {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
        options = {
            "num_cpus": engine.workers,
            "include_dashboard": False,
            "runtime_env": path,
        }
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", **options)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"Ray does not start ({reason}): see its address and its logs") from error
