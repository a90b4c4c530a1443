"""Who does the work of an evaluation: this process (`Local`), or others (`brusle.Ray`).

An engine takes shards from a `ShardSupply`, in the size that suits it, and hands rows to a `Sink`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from brusle.answers import SEVERAL
from brusle.evaluation.record import Row
from brusle.evaluation.running.shards import Shard, ShardSupply
from brusle.evaluation.storing.rows import rows_of
from brusle.evaluation.storing.traces import pack
from brusle.results import AttackResult
from brusle.session import Progress, run
from brusle.victim import Victim

Traces = dict[int, bytes]  # packed, by the id of their problem
_BATCHES = 4  # in a local shard: few enough to be small, enough to keep the batch full


class Sink(Protocol):
    """Where rows go."""

    def keep(self, shard: Shard, rows: list[Row], traces: Traces) -> None:
        """These rows of a shard are final; they and their traces are durable when this returns."""

    def show(self, shard: Shard, progress: Progress) -> None:
        """How far a shard is, every now and then."""


class Engine(Protocol):
    """Does shards, in any order."""

    def run(self, supply: ShardSupply, sink: Sink) -> None:
        """Attack all that ``supply`` has, and hand rows to ``sink`` as soon as they are final.

        A wave of it begins when all rows of the one before are with the sink.
        """


class Local:
    """This process."""

    def run(self, supply: ShardSupply, sink: Sink) -> None:
        """One shard after the other."""
        for wave in supply.waves():
            for shard in wave.shards(_BATCHES * supply.batch_size, remembered=True):
                attack(supply.victim, shard, partial(sink.keep, shard), partial(sink.show, shard))


def attack(
    victim: Victim,
    shard: Shard,
    on_rows: Callable[[list[Row], Traces], None],
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Attack the problems of one shard."""

    def settled(result: AttackResult, which: list[int]) -> None:
        ids = shard.problems.ids.tolist()
        traces = {ids[i]: pack(result.traces.pop(i)) for i in which if i in result.traces}
        on_rows(rows_of(result, which, shard.names), traces)

    run(
        shard.attack,
        victim,
        shard.problems,
        seed=shard.setting.seed,
        batch_size=shard.batch_size,
        eot=shard.setting.eot,
        on_progress=on_progress,
        on_settled=settled,
        all_may_fail=len(shard) < SEVERAL,
        memory=shard.memory,
        success=shard.setting.success,
        trace=shard.trace,
    )
