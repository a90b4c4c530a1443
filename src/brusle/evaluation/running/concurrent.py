"""Many problems under way at once in this process, for victims that answer over a network.

A service takes its time, now and then a long time, and answers several calls at once. If all
problems asked in one batch, all would wait for the slowest answer in every round. So every problem
is a shard of its own, attacked in a thread of its own: as long as there are problems left, as many
calls are under way as the victim allows. What an attack finds depends on its problem alone, so rows
are the same.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial

from brusle.evaluation.running.engines import Sink, attack
from brusle.evaluation.running.shards import Shard, ShardSupply
from brusle.session import Progress
from brusle.victim import Victim, traits

_LANES = 2  # problems for each call that may be under way: some are computing meanwhile
_OFTEN = 0.05  # seconds after which who asks the victim in spite of all is interrupted again


class Concurrent:
    """This process, with threads."""

    def run(self, supply: ShardSupply, sink: Sink) -> None:
        """Attack all that ``supply`` has; the first failure ends it, and what is stored stays."""
        lanes = _LANES * traits(supply.victim).concurrency
        stopped = threading.Event()
        work = partial(_attack, supply, sink, stopped)
        with ThreadPoolExecutor(lanes, thread_name_prefix="brusle-attack") as pool:
            running: set[Future[None]] = set()
            try:
                for shard in supply.shards(1):
                    running.add(pool.submit(work, shard))
                    if len(running) >= lanes:
                        running = _settled(running)
                while running:
                    running = _settled(running)
            finally:
                stopped.set()
                _interrupt(supply.victim, running)


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


def _attack(supply: ShardSupply, sink: Sink, stopped: threading.Event, shard: Shard) -> None:
    def show(progress: Progress) -> None:
        if stopped.is_set():  # as if the user had interrupted this thread, too
            raise KeyboardInterrupt
        sink.show(shard, progress)

    if not stopped.is_set():
        attack(supply.victim, shard, partial(sink.keep, shard), show)
