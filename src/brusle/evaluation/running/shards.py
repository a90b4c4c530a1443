"""What is left to attack, cut into shards: problems of one setting that are attacked together.

What an attack finds depends on the seed and on the problem alone, so rows are the same whoever
attacks a shard, and however the problems are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from brusle.evaluation.record import Setting
from brusle.evaluation.running.starts import StartingImages
from brusle.evaluation.running.victim import VictimSpec
from brusle.evaluation.running.workload import Workload
from brusle.evaluation.storing.pending import Pending
from brusle.evaluation.storing.store import Store
from brusle.oracle import Memory
from brusle.problems import Problems
from brusle.search import Attack
from brusle.victim import Victim, traits


@dataclass(frozen=True)
class Shard:
    """Problems of one setting that are attacked together.

    Attributes:
        number: tells it from others.
        setting: the setting, as it is stored.
        attack: its attack.
        problems: the problems.
        names: what their images are called.
        batch_size: most images in one call of the victim.
        trace: keep what the searches find on their way.
        memory: answers of an interrupted run, for engines that work in this process.
    """

    number: int
    setting: Setting
    attack: Attack
    problems: Problems
    names: tuple[str, ...]
    batch_size: int
    trace: bool = False
    memory: Memory | None = None

    def __len__(self) -> int:
        return len(self.names)

    def without(self, done: set[int]) -> Shard:
        """The shard without the problems of these ids."""
        rest = [at for at, i in enumerate(self.problems.ids.tolist()) if i not in done]
        names = tuple(self.names[at] for at in rest)
        return replace(self, problems=self.problems[rest], names=names)


@dataclass(frozen=True)
class Unfinished:
    """The problems of a setting that are not stored yet.

    Attributes:
        setting: the setting, as it is stored.
        attack: its attack.
        ids: of all its problems, in their order.
        rows: which of them are left.
        fooled: how many of the others are successes.
    """

    setting: Setting
    attack: Attack
    ids: list[int]
    rows: list[int]
    fooled: int

    @classmethod
    def of(
        cls,
        store: Store,
        setting: Setting,
        attack: Attack,
        workload: Workload,
        retry_errors: bool = False,
    ) -> Unfinished:
        """What ``store`` lacks of a setting, which is added to it."""
        ids = workload.list_of(setting.goal).ids.tolist()
        setting = store.add_setting(setting.model_copy(update={"problems": len(ids)}))
        done = store.done(setting.number, retry_errors)
        rows = [row for row, number in enumerate(ids) if number not in done]
        fooled = sum(done.get(number) == "success" for number in ids)
        return cls(setting, attack, ids, rows, fooled)

    @property
    def stored(self) -> int:
        """How many problems were stored before."""
        return len(self.ids) - len(self.rows)

    def stored_now(self, store: Store) -> int:
        """How many problems are stored by now."""
        done = store.done(self.setting.number)
        return sum(number in done for number in self.ids)

    def images(self, workload: Workload) -> list[int]:
        """Which images of the manifest are left."""
        left: list[int] = workload.list_of(self.setting.goal).images[self.rows].tolist()
        return left

    def in_turn(self, pending: Pending | None) -> tuple[list[int], list[int]]:
        """What is left: problems that were interrupted, the most answered first; and the others."""
        if pending is None:
            return [], self.rows
        answers = pending.counts(self.setting.key)
        begun = [row for row in self.rows if answers[self.ids[row]]]
        begun.sort(key=lambda row: -answers[self.ids[row]])
        # a kill may have come between a row and this
        pending.forget(self.setting.key, answers.keys() - {self.ids[row] for row in begun})
        return begun, [row for row in self.rows if not answers[self.ids[row]]]


@dataclass(frozen=True)
class ShardSupply:
    """All that an engine needs: the victim, and what is left to attack.

    Attributes:
        spec: how other processes open the victim.
        victim: the victim, open in this process.
        unfinished: what is left of each setting.
        workload: images and targets.
        starting: starting images, for the attacks that want them.
        batch_size: most images in one call of the victim.
        pending: answers of an interrupted run; None if none are kept.
        trace: keep what the searches find on their way.
        parts: what is left of each setting, a part at a time, if what to attack next depends on
            what was found; None hands out all of ``unfinished`` at once.
        numbers: of the shards.
    """

    spec: VictimSpec
    victim: Victim
    unfinished: Sequence[Unfinished]
    workload: Workload
    starting: StartingImages
    batch_size: int
    pending: Pending | None = None
    trace: bool = False
    parts: Iterable[Sequence[Unfinished]] | None = None
    numbers: Iterator[int] = field(default_factory=count)

    def waves(self) -> Iterator[ShardSupply]:
        """What may be attacked at the same time; the next is known when all of it is stored."""
        if self.parts is None:
            yield self
            return
        for unfinished in self.parts:
            yield replace(self, unfinished=unfinished, parts=None)

    def shards(self, most: int, at_least: int = 1, remembered: bool = False) -> Iterator[Shard]:
        """The shards, one after the other; images are read when their shard is asked for.

        Args:
            most: problems in a shard.
            at_least: shards of each setting, if it has so many problems.
            remembered: with the answers of an interrupted run, which are in use one shard at a
                time; what was interrupted comes first.
        """
        pending = self.pending if remembered else None
        for left in self.unfinished:
            size = max(1, min(most, -(-len(left.rows) // at_least)))
            for rows in _portions(*left.in_turn(pending), size, self.batch_size):
                shard = self._shard(next(self.numbers), left, rows)
                if pending is not None:
                    ids, randomised = shard.problems.ids.tolist(), traits(self.victim).randomised
                    memory = pending.of(left.setting.key, ids, randomised)
                    shard = replace(shard, memory=memory)
                yield shard

    def _shard(self, number: int, left: Unfinished, rows: Sequence[int]) -> Shard:
        goal = left.setting.goal
        problems = self.workload.problems(goal, rows)
        if left.attack.wants_start(goal == "targeted"):
            problems = replace(problems, starts=self.starting.choose(problems))
        names = tuple(self.workload.names(goal, rows))
        what = (left.setting, left.attack, problems, names)
        return Shard(number, *what, self.batch_size, self.trace)


def _portions(
    begun: Sequence[int], others: Sequence[int], size: int, batch_size: int
) -> Iterator[Sequence[int]]:
    """``size`` at a time; first what was ``begun`` and interrupted, a few at a time.

    A run that is killed again and again gets ahead only if what it has begun ends in between, and a
    few attacks end sooner than many. Each portion is twice the one before: little time is lost.
    """
    few = max(1, batch_size // 16)
    while begun:
        count = min(few, size)
        yield begun[:count]
        begun, few = begun[count:], 2 * few
    for start in range(0, len(others), size):
        yield others[start : start + size]
