"""Evaluations on several processes or machines, by Ray (Moritz et al., OSDI 2018).

Shards are Ray tasks. A worker opens the victim once and keeps it; rows stream back to the process
that called, which alone writes to the store. When a worker or a whole machine dies, what it had not
delivered is given to another: no attack is counted twice, and none that was stored is asked again.
"""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from brusle.errors import BrusleError, InputError, VictimError, VictimUnavailable, first_line
from brusle.evaluation.record import Row
from brusle.evaluation.running.engines import Sink
from brusle.evaluation.running.ray_cluster import LOOK, ClusterDied, Pulse, connected, import_ray
from brusle.evaluation.running.ray_worker import Order, work
from brusle.evaluation.running.shards import Shard, ShardSupply
from brusle.session import Progress
from brusle.version import __version__
from brusle.victims.fingerprints import fingerprint

if TYPE_CHECKING:
    from types import ModuleType

_TRIES = 3  # of a shard without a single new row, before it is given up
_SHARDS = 2  # for each worker and setting: more wait less for the last, fewer have fuller batches
_BATCHES = 2  # in a shard, at most


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

    def run(self, supply: ShardSupply, sink: Sink) -> None:
        """All shards, several at a time."""
        ray, victim = import_ray(), supply.victim
        # small enough that all workers have something to do until the end
        workers = self.workers or os.cpu_count() or 1
        with connected(ray, self.workers, self.address):
            order = Order(uuid.uuid4().hex, supply.spec, fingerprint(victim), __version__)
            gpus = 1 if victim.device.type == "cuda" else 0
            crew = _Crew(ray, order, self.workers, gpus, sink)
            for wave in supply.waves():
                crew.work(wave.shards(_BATCHES * wave.batch_size, at_least=_SHARDS * workers))


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

    def add(self, rows: list[Row]) -> None:
        """Rows have been stored."""
        self.tries = 0
        self.done |= {row.problem for row in rows}
        count, limit = len(self.shard), self.shard.setting.queries
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
        order: Order,
        workers: int | None,
        gpus: int,
        sink: Sink,
    ) -> None:
        self._ray, self._workers, self._sink = ray, workers, sink
        self._order = ray.put(order)
        # our own retries know what is stored already, Ray's do not
        self._remote = ray.remote(
            num_cpus=1,
            num_gpus=gpus,
            max_retries=0,
            num_returns="streaming",
            scheduling_strategy="SPREAD",
        )(work)
        self._pulse = Pulse(ray)
        self._cores = 1
        self._trouble: VictimUnavailable | None = None
        self._again: deque[_Task] = deque()
        self._busy: dict[Any, _Task] = {}

    def work(self, shards: Iterator[Shard]) -> None:
        """Until everything is stored; or the victim is in trouble, and what was begun is stored."""
        try:
            while self._hand_out(shards):
                ready, _ = self._ray.wait(
                    list(self._busy), num_returns=1, fetch_local=False, timeout=LOOK
                )
                if not ready:
                    continue
                try:
                    self._collect(ready[0])
                except ClusterDied:
                    raise
                except VictimUnavailable as trouble:
                    self._busy.pop(ready[0], None)
                    self._trouble = self._trouble or trouble
        finally:
            if not self._pulse.silent:  # or it would not return
                for stream in self._busy:
                    self._ray.cancel(stream, force=True)
        if self._trouble is not None:
            raise self._trouble

    def _hand_out(self, shards: Iterator[Shard]) -> bool:
        """Keep all workers busy, and no more in memory than that; whether there is work left."""
        self._pulse.check()
        if self._pulse.silent:
            return True  # nothing new, until it is known whether it comes back
        if self._workers is None:
            self._cores = int(self._ray.cluster_resources().get("CPU", 1))
        # machines may come and go; one task more than cores waits where it will be done
        most = self._workers or 1 + self._cores
        while len(self._busy) < most and self._trouble is None:
            task = self._again.popleft() if self._again else self._next(shards)
            if task is None:
                break
            task.tries += 1
            try:
                self._busy[self._remote.remote(self._order, task.rest)] = task
            except self._ray.exceptions.RayError as error:
                raise ClusterDied(first_line(error)) from error
        return bool(self._busy)

    def _next(self, shards: Iterator[Shard]) -> _Task | None:
        """Work that nobody has begun; None if there is no more."""
        try:
            shard = next(shards, None)
        except VictimUnavailable as trouble:  # while it was asked for starting images
            self._trouble = trouble
            return None
        return None if shard is None else _Task(shard)

    def _collect(self, stream: Any) -> None:
        """Store the next rows of a worker, or see to it that another does its work."""
        task, errors = self._busy[stream], self._ray.exceptions
        try:
            rows, traces = self._ray.get(next(stream))
        except StopIteration:
            del self._busy[stream]
            return
        except errors.RayTaskError as error:
            raise _plain(error) from error
        except errors.LocalRayletDiedError as error:
            raise ClusterDied("its process on this machine, the raylet, is gone") from error
        except errors.RayError as error:
            del self._busy[stream]
            self._retry(task, error)
            return
        self._sink.keep(task.shard, rows, traces)
        task.add(rows)
        self._sink.show(task.shard, task.progress)

    def _retry(self, task: _Task, error: Exception) -> None:
        if len(task.done) == len(task.shard):
            return
        if task.tries >= _TRIES:
            raise VictimUnavailable(
                f"a worker died {_TRIES} times on the same {len(task.rest)} images "
                f"({first_line(error)}): if "
                f"it ran out of memory, give a smaller --batch-size or fewer --workers"
            ) from error
        self._again.append(task)


def _plain(error: Any) -> BaseException:
    """The error of a worker without Ray's account of it."""
    cause = error.cause
    if isinstance(cause, BrusleError):
        return cause
    lines = str(cause).splitlines() or [""]
    hint = ": what the victim is made of must be installed on all machines"
    return VictimError(f"a worker failed: {lines[0]}{hint if 'No module' in lines[0] else ''}")
