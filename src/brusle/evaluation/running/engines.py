"""Who does the work of an evaluation: this process (`Local`), or others (`brusle.Ray`).

Work comes in shards, problems of one setting that are attacked together. What an attack finds
depends on the seed and on the problem alone, so rows are the same whoever does the work and however
it is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from brusle.defences import defend
from brusle.evaluation.storing.store import GoalName, Record, Row, rows_of
from brusle.oracle import SEVERAL, Memory
from brusle.problems import Problems
from brusle.results import AttackResult
from brusle.search import Attack
from brusle.session import Progress, run
from brusle.victim import Victim
from brusle.victims import as_victim, timed

_BATCHES = 4  # in a local shard: few enough to be small, enough to keep the batch full


@dataclass(frozen=True)
class Setting:
    """What is asked for: an attack (with its budgets), a goal, and a seed.

    Attributes:
        attack: the attack.
        goal: "untargeted" or "targeted".
        seed: the seed.
        eot: answers that are averaged for every candidate.
    """

    attack: Attack
    goal: GoalName
    seed: int = 0
    eot: int = 1

    @property
    def key(self) -> str:
        """Tells it from all others, also in the store."""
        return f"{self.attack!r} {self.goal} seed={self.seed} eot={self.eot}"

    @property
    def wants_start(self) -> bool:
        """Whether the attack should be given starting images for this goal."""
        return self.attack.wants_start(self.goal == "targeted")


@dataclass(frozen=True)
class Shard:
    """Problems of one setting that are attacked together.

    Attributes:
        number: tells it from others.
        record: the setting in the store.
        setting: the setting.
        problems: the problems.
        names: what their images are called.
        batch_size: most images in one call of the victim.
        memory: answers of an interrupted run, for engines that work in this process.
    """

    number: int
    record: Record
    setting: Setting
    problems: Problems
    names: tuple[str, ...]
    batch_size: int
    memory: Memory | None = None

    def __len__(self) -> int:
        return len(self.names)

    def without(self, done: set[int]) -> Shard:
        """The shard without the problems of these ids."""
        rest = [at for at, i in enumerate(self.problems.ids.tolist()) if i not in done]
        names = tuple(self.names[at] for at in rest)
        return replace(self, problems=self.problems[rest], names=names)


@dataclass(frozen=True)
class Recipe:
    """How to open the victim, here or in another process.

    Attributes:
        victim: a name, a module or a victim.
        device: where it runs.
        defences: defences before it.
        timeout: most seconds that one call of it may take; None is no limit.
    """

    victim: Any
    device: str = "auto"
    defences: tuple[str, ...] = ()
    timeout: float | None = None

    def open(self) -> Victim:
        """The victim."""
        victim = defend(as_victim(self.victim, self.device), self.defences)
        return timed(victim, self.timeout)


OnRows = Callable[[Shard, list[Row]], None]
OnProgress = Callable[[Shard, Progress], None]


class Engine(Protocol):
    """Does shards, in any order."""

    @property
    def remembers(self) -> bool:
        """Whether shards are done here, one after the other, so that each can have a memory."""

    def shard_size(self, problems: int, batch_size: int) -> int:
        """How many problems a shard should have, if a setting has so many."""

    def run(
        self,
        recipe: Recipe,
        victim: Victim,
        shards: Iterable[Shard],
        on_rows: OnRows,
        on_progress: OnProgress,
    ) -> None:
        """Attack all ``shards``.

        Args:
            recipe: how other processes open the victim.
            victim: the victim, open in this process.
            shards: the work, made when it is asked for.
            on_rows: called with rows as soon as they are final; they are durable when it returns.
            on_progress: called every now and then.
        """


class Local:
    """This process."""

    @property
    def remembers(self) -> bool:
        """They are."""
        return True

    def shard_size(self, problems: int, batch_size: int) -> int:
        """A few batches."""
        return _BATCHES * batch_size

    def run(
        self,
        recipe: Recipe,
        victim: Victim,
        shards: Iterable[Shard],
        on_rows: OnRows,
        on_progress: OnProgress,
    ) -> None:
        """One shard after the other."""
        for shard in shards:
            attack(victim, shard, partial(on_rows, shard), partial(on_progress, shard))


def attack(
    victim: Victim,
    shard: Shard,
    on_rows: Callable[[list[Row]], None],
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Attack the problems of one shard."""

    def settled(result: AttackResult, which: list[int]) -> None:
        on_rows(rows_of(result, which, shard.names))

    run(
        shard.setting.attack,
        victim,
        shard.problems,
        seed=shard.setting.seed,
        batch_size=shard.batch_size,
        eot=shard.setting.eot,
        on_progress=on_progress,
        on_settled=settled,
        all_may_fail=len(shard) < SEVERAL,
        memory=shard.memory,
    )
