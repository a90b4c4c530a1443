"""Evaluations on several processes or machines, by Ray (Moritz et al., OSDI 2018).

Shards are Ray tasks. A worker opens the victim once and keeps it; rows stream back to the process
that called, which alone writes to the store. When a worker or a whole machine dies, what it had not
delivered is given to another: no attack is counted twice, and none that was stored is asked again.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import torch

import brusle
from brusle.calls import call
from brusle.errors import BrusleError, InputError, VictimError, VictimUnavailable, first_line
from brusle.evaluation.running.engines import OnProgress, OnRows, Recipe, Shard, attack
from brusle.evaluation.running.provenance import fingerprint
from brusle.evaluation.storing.store import Row
from brusle.session import Progress
from brusle.victim import Victim

if TYPE_CHECKING:
    from types import ModuleType

_TRIES = 3  # of a shard without a single new row, before it is given up
_WAIT = 20.0  # seconds for a cluster to let us in
_SILENCE = 15.0  # seconds of a dead cluster, before we say so
_LOOK = 2.0  # seconds between two looks at the head
_REFUSED = re.compile("Unauthenticated|InvalidAuthToken|AuthenticationError")
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
        with _connected(ray, self):
            order = _Order(uuid.uuid4().hex, recipe, fingerprint(victim), brusle.__version__)
            gpus = 1 if victim.device.type == "cuda" else 0
            _Crew(ray, order, self.workers, gpus, on_rows, on_progress).work(iter(shards))


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
        self._pulse = _Pulse(ray)
        self._cores = 1
        self._trouble: VictimUnavailable | None = None
        self._again: deque[_Task] = deque()
        self._busy: dict[Any, _Task] = {}

    def work(self, shards: Iterator[Shard]) -> None:
        """Until everything is stored; or the victim is in trouble, and what was begun is stored."""
        try:
            while self._hand_out(shards):
                ready, _ = self._ray.wait(
                    list(self._busy), num_returns=1, fetch_local=False, timeout=_LOOK
                )
                if not ready:
                    continue
                try:
                    self._collect(ready[0])
                except _ClusterDied:
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
        places = self._workers or 1 + self._cores
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
            try:
                self._busy[self._remote.remote(self._order, task.rest)] = task
            except self._ray.exceptions.RayError as error:
                raise _died(first_line(error)) from error
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
        except errors.LocalRayletDiedError as error:
            raise _died("its process on this machine, the raylet, is gone") from error
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
            raise VictimUnavailable(
                f"a worker died {_TRIES} times on the same {len(task.rest)} images "
                f"({first_line(error)}): if "
                f"it ran out of memory, give a smaller --batch-size or fewer --workers"
            ) from error
        self._again.append(task)


class _Pulse:
    """Whether the processes live without which a cluster is dead: its head, and this machine's.

    Ray would wait for them, and then end this process without a word of ours.

    Attributes:
        silent: one of them did not listen when it was last looked at.
    """

    def __init__(self, ray: ModuleType) -> None:
        context = ray.get_runtime_context()
        (here,) = (node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
        raylet = f"{here['NodeManagerAddress']}:{here['NodeManagerPort']}"
        self._parts = {context.gcs_address: "head", raylet: "process on this machine"}
        self.silent = False
        self._heard = self._looked = time.monotonic()

    def check(self) -> None:
        """Look now and then; raise if one has been silent for too long."""
        now = time.monotonic()
        if now < self._looked + _LOOK:
            return
        self._looked = now
        dead = [f"{what} at {where}" for where, what in self._parts.items() if not _listens(where)]
        self.silent = bool(dead)
        if not dead:
            self._heard = now
        elif now > self._heard + _SILENCE:
            raise _died(f"its {dead[0]} has not answered for {_SILENCE:.0f} s")


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_LOOK).close()
    except (OSError, ValueError):
        return False
    return True


class _ClusterDied(VictimUnavailable):
    """Nobody is left to work."""


def _died(reason: str) -> _ClusterDied:
    return _ClusterDied(f"the Ray cluster has died: {reason}")


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


@contextmanager
def _connected(ray: ModuleType, engine: Ray) -> Iterator[None]:
    """In a cluster: the one that this process is in, the one at the address, or one of our own."""
    if ray.is_initialized():
        yield
        return
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
    with _token(engine.address):
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **options)
        except (ValueError, RuntimeError, OSError, ray.exceptions.RayError) as error:
            raise InputError(
                f"Ray does not start ({first_line(error)}): see its address and its logs"
            ) from error
        try:
            yield
        except _ClusterDied:
            with suppress(TimeoutError):  # it may wait for the dead
                call(ray.shutdown, _LOOK)
            raise
        except BaseException:
            ray.shutdown()
            raise
        ray.shutdown()


@contextmanager
def _token(address: str | None) -> Iterator[None]:
    """What Ray's authentication needs; the user's own settings win.

    Since 2.60, Ray writes a token into the home folder for a cluster on this machine, and from then
    on ``ray start --head`` asks for it. A cluster of ours gets a token of its own and leaves none
    behind. One at an address is asked whether it wants a token: Ray would not show it by itself.
    """
    mode, secret = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
    before = {name: os.environ.get(name) for name in (mode, secret)}
    if address is not None:
        os.environ[mode] = _admission(address)
    elif before[mode] is None:
        os.environ[mode] = "token"
        if not _has_token():
            os.environ[secret] = secrets.token_hex(32)
    _read_token_again()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
        _read_token_again()


def _admission(address: str) -> str:
    """The authentication mode in which a cluster lets us in; raise if there is none."""
    if ":" in address and not address.startswith("ray://") and not _listens(address):
        raise InputError(f"nobody listens at {address}: is it the address of a Ray cluster?")
    chosen = os.environ.get("RAY_AUTH_MODE")
    reason = ""
    for mode in [chosen] if chosen else ["disabled", "token"]:
        if mode == "token" and not _has_token():
            break
        reason = _knock(address, mode)
        if not reason:
            return mode
        if not _REFUSED.search(reason):
            raise InputError(f"there is no Ray cluster at {address} ({reason}): see its address")
    raise InputError(
        f"the Ray cluster at {address} wants another token: copy ~/.ray/auth_token of its first "
        f"machine, or set RAY_AUTH_TOKEN"
    )


def _knock(address: str, mode: str) -> str:
    """Why a cluster does not let us in, or empty; asked by a process, since Ray may wait long."""
    script = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False); ray.shutdown()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, address],
        env=os.environ | {"RAY_AUTH_MODE": mode},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stderr is not None
    late = threading.Timer(_WAIT, process.kill)
    late.start()
    reason = "it does not say why"
    for line in process.stderr:
        reason = line.strip() or reason
        if _REFUSED.search(line):
            process.kill()  # it would try again for a while
            break
    process.stderr.close()
    code = process.wait()
    in_time = late.is_alive()
    late.cancel()
    if code == 0:
        return ""
    known = _REFUSED.search(reason) or in_time
    return reason if known else f"it did not let us in within {_WAIT:.0f} s"


def _has_token() -> bool:
    """Whether Ray would find a token."""
    file = os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or Path(file).is_file()


def _read_token_again() -> None:
    """Ray keeps what it has read for the whole process; older ones know no tokens."""
    with suppress(ImportError, AttributeError):
        raylet: Any = import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
