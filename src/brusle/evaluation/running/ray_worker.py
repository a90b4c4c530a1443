"""What a Ray worker does: it opens the victim once, attacks shards, and hands over rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue

import torch

from brusle.errors import InputError
from brusle.evaluation.record import Row
from brusle.evaluation.running.engines import Traces, attack
from brusle.evaluation.running.shards import Shard
from brusle.evaluation.running.victim import VictimSpec
from brusle.version import __version__
from brusle.victim import Victim
from brusle.victims.fingerprints import fingerprint


@dataclass(frozen=True)
class Order:
    """What every worker must know.

    Attributes:
        token: tells this evaluation from others that a worker may have served.
        spec: how to open the victim.
        weights: what `fingerprint` must say of it.
        version: of brusle.
    """

    token: str
    spec: VictimSpec
    weights: str
    version: str


Finished = tuple[list[Row], Traces]

_OPEN: dict[str, Victim] = {}  # the victim of the evaluation that this worker serves


def work(order: Order, shard: Shard) -> Iterator[Finished]:
    """Attack a shard, and hand over rows and traces as they become final."""
    victim = open_once(order)
    queue: SimpleQueue[Finished | BaseException | None] = SimpleQueue()
    job = threading.Thread(target=_fill, args=(queue.put, victim, shard), daemon=True)
    job.start()
    while (item := queue.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


def _fill(
    deliver: Callable[[Finished | BaseException | None], None], victim: Victim, shard: Shard
) -> None:
    try:
        attack(victim, shard, lambda rows, traces: deliver((rows, traces)))
    except BaseException as error:
        deliver(error)
    deliver(None)


def open_once(order: Order) -> Victim:
    """The victim of an order, which must be the one of whoever gave it."""
    if order.version != __version__:
        raise InputError(
            f"a worker has brusle {__version__}, this is {order.version}: install the same "
            f"version on all machines"
        )
    if order.token not in _OPEN:
        torch.set_num_threads(1)  # a worker has one core
        _OPEN.clear()
        victim = order.spec.open()
        if fingerprint(victim) != order.weights:
            raise InputError(
                f"{victim.name} has other weights on a worker's machine: copy the same files there"
            )
        _OPEN[order.token] = victim
    return _OPEN[order.token]
