"""Many problems under way at once in this process, for victims that answer over a network.

A service takes its time, now and then a long time, and answers several calls at once. If all
problems asked in one batch, all would wait for the slowest answer in every round. So every problem
is a shard of its own, attacked in a thread of its own: as long as there are problems left, as many
calls are under way as the victim allows. What an attack finds depends on its problem alone, so rows
are the same.

Threads compute in turn, as many at once as there are cores to spare, and let others go ahead while
they wait for an answer. Dozens of threads that fight for the interpreter would keep the one that
speaks with the service waiting.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from brusle.evaluation.running.engines import Sink, attack
from brusle.evaluation.running.shards import Shard, ShardSupply
from brusle.replies import Consultation
from brusle.session import Progress
from brusle.victim import Victim, traits
from brusle.victims.wrappers import VictimView

LANES = 2  # problems for each call that may be under way: some are computing meanwhile
_OFTEN = 0.05  # seconds after which who asks the victim in spite of all is interrupted again


class Concurrent:
    """This process, with threads."""

    def run(self, supply: ShardSupply, sink: Sink) -> None:
        """Attack all that ``supply`` has; the first failure ends it, and what is stored stays."""
        lanes = LANES * traits(supply.victim).concurrency
        stopped = threading.Event()
        turns = threading.Semaphore(max(1, (os.cpu_count() or 1) - 1))
        work = partial(_attack, supply, sink, stopped, turns)
        with _threads(lanes) as pool:
            running: set[Future[None]] = set()
            try:
                for wave in supply.waves():
                    for shard in wave.shards(1):
                        running.add(pool.submit(work, shard))
                        if len(running) >= lanes:
                            running = _settled(running)
                    while running:
                        running = _settled(running)
            finally:
                stopped.set()
                _interrupt(supply.victim, running)


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that compute alone: torch's own helpers would keep the others waiting."""
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(count, "brusle-attack", torch.set_num_threads, (1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)


def _interrupt(victim: Victim, running: set[Future[None]]) -> None:
    """Wait for threads that are to end, and do not let them wait for the victim."""
    interrupt = getattr(victim, "interrupt", None)
    while wait(running, timeout=_OFTEN).not_done:
        if interrupt is not None:
            interrupt()


def _settled(running: set[Future[None]]) -> set[Future[None]]:
    """What is left when at least one has ended; raises what ended it."""
    ended, rest = wait(running, return_when=FIRST_COMPLETED)
    for one in ended:
        one.result()
    return rest


@dataclass(frozen=True)
class _InTurn(VictimView):
    """A victim whose callers give up their turn while they wait for its answer."""

    turns: threading.Semaphore

    def consult(self, images: Tensor, keys: Tensor, again: bool = False) -> Consultation:
        """As in `brusle.replies.KeepsBooks`."""
        self.turns.release()
        try:
            answer: Consultation = self.victim.consult(images, keys, again)  # type: ignore[attr-defined]
            return answer
        finally:
            self.turns.acquire()


def _attack(
    supply: ShardSupply,
    sink: Sink,
    stopped: threading.Event,
    turns: threading.Semaphore,
    shard: Shard,
) -> None:
    def show(progress: Progress) -> None:
        if stopped.is_set():  # as if the user had interrupted this thread, too
            raise KeyboardInterrupt
        sink.show(shard, progress)

    victim = _InTurn(supply.victim, supply.victim.name, traits(supply.victim).patience, turns)
    with turns:
        if not stopped.is_set():
            attack(victim, shard, partial(sink.keep, shard), show)
