"""Attacks no more images than a gate needs: ``brusle evaluate --until-decided``.

Images come in a random order, and the gate's question is asked after each of them
(`brusle.evaluation.statistics.sequential`). What is handed out at once is as many images as it
takes at the least to decide, whatever becomes of them: none is attacked that the answer did not
need, and which are attacked does not depend on who does the work.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from brusle.errors import DataError, InputError
from brusle.evaluation.gating.answers import Result, together
from brusle.evaluation.gating.counts import Robust
from brusle.evaluation.gating.images import Fate, fates
from brusle.evaluation.gating.matching import settings_at
from brusle.evaluation.gating.questions import At, Gate
from brusle.evaluation.record import Setting
from brusle.evaluation.running.pairs import shuffled
from brusle.evaluation.running.shards import Unfinished
from brusle.evaluation.running.workload import Workload
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Store
from brusle.rng import Purpose


def check_until(until: Gate, settings: Sequence[Setting]) -> None:
    """Raise if attacks with these settings cannot decide a gate."""
    if until.max_drop is not None:
        raise InputError(
            "how many images a drop needs cannot be told beforehand: leave --max-drop to "
            "`brusle gate`"
        )
    for at in until.at:
        settings_at(until, at, settings, "the plan")


def require_alike(store: Store, until: Gate | None) -> None:
    """Raise if a folder has images that were attacked in turn, and others; nobody could judge it.

    How surely a verdict is right depends on how it was decided when to stop.
    """
    if until is None and store.sequence():
        raise DataError(
            "the run folder holds results that ended as soon as something was decided: go on with "
            "--until-decided, or choose another --out"
        )
    if until is not None and store.images() and not store.sequence():
        raise DataError(
            "the run folder holds results that were not made with --until-decided, whose images "
            "are in no order: choose another --out"
        )


class Deciding:
    """What is left to attack, a part at a time, until a gate is decided or nothing is left."""

    def __init__(
        self,
        until: Gate,
        store: Store,
        workload: Workload,
        unfinished: Sequence[Unfinished],
        seed: int,
    ) -> None:
        """Look at what is stored.

        Args:
            until: what is to be decided.
            store: where rows are and come to be.
            workload: images and targets.
            unfinished: what is left of each setting.
            seed: of the order of the images.
        """
        self._store, self._workload, self._unfinished = store, workload, list(unfinished)
        settings = [left.setting for left in unfinished]
        self._watches = [
            _Watch(
                condition.at,
                settings_at(until, condition.at, settings, "the plan"),
                Robust((condition.min_robust or 0) / 100, until.alphas, in_turn=True),
            )
            for condition in until.conditions
        ]
        self._judged = 0
        self._queue = self._in_turn(seed)
        self._left = self._rows_by_image()

    def __iter__(self) -> Iterator[list[Unfinished]]:
        """What to attack next, of each setting; how to go on follows from what is stored then."""
        left = self._left
        self._say_how_many()
        while not self._is_decided(left):
            some = self._next()
            if not some:
                return
            self._hand_out(some)
            mine = [left.pop(name, {}) for name in some]
            yield [
                replace(one, rows=sorted(row for rows in mine for row in rows.get(number, ())))
                for number, one in enumerate(self._unfinished)
            ]

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be attacked any more."""
        return self._is_decided(self._left) or not self._next()

    def _in_turn(self, seed: int) -> list[str]:
        """Names of all images: those that were handed out before, then the others at random."""
        begun, known = self._store.sequence(), self._store.images()
        there, entries = {known[name] for name in begun}, self._workload.manifest.entries
        wanted = {
            at
            for left in self._unfinished
            for at in self._workload.list_of(left.setting.goal).images.tolist()
        }
        order = shuffled(len(entries), seed, 0, Purpose.TURN)
        others = [entries[at] for at in order if at in wanted]
        return begun + [e.name for e in others if (e.label, e.sha256) not in there]

    def _rows_by_image(self) -> dict[str, dict[int, list[int]]]:
        """By image and number of the setting, the problems that are to be attacked."""
        found: dict[str, dict[int, list[int]]] = {}
        for number, left in enumerate(self._unfinished):
            names = self._workload.names(left.setting.goal, left.rows)
            for name, row in zip(names, left.rows, strict=True):
                found.setdefault(name, {}).setdefault(number, []).append(row)
        return found

    def _is_decided(self, left: Container[str]) -> bool:
        """Judge image after image, up to the first that has something left to attack."""
        run, sequence = Run(self._store), self._store.sequence()
        found = [[*fates(run, one.settings, one.at).of.values()] for one in self._watches]
        while (
            self._result == "undecided"
            and self._judged < len(sequence)
            and sequence[self._judged] not in left
        ):
            for watch, mine in zip(self._watches, found, strict=True):
                watch.add(mine[self._judged])
            self._judged += 1
        return self._result != "undecided"

    @property
    def _result(self) -> Result:
        return together([watch.result for watch in self._watches])

    def _next(self) -> list[str]:
        """As many images as could decide at the least; none if all that are left could not."""
        ahead = self._queue[self._judged :]
        most = len(ahead) + 1
        waiting = [watch.counts for watch in self._watches if watch.result == "undecided"]
        to_pass = max(counts.fewest("pass", most) for counts in waiting)
        to_fail = min(counts.fewest("fail", most) for counts in waiting)
        fewest = min(to_pass, to_fail)
        return ahead[:fewest] if fewest < most else []

    def _hand_out(self, some: Sequence[str]) -> None:
        """Write down which images are next, before they are attacked."""
        begun, known = self._store.sequence(), self._workload.manifest.known
        news = [name for name in some if name not in set(begun)]
        self._store.add_images({name: known[name] for name in news})
        self._store.extend_sequence(news)
        self._say_how_many()

    def _say_how_many(self) -> None:
        """A setting has as many problems as were handed out."""
        begun = set(self._store.sequence())
        for left in self._unfinished:
            names = self._workload.names(left.setting.goal, range(len(left.ids)))
            problems = sum(name in begun for name in names)
            self._store.add_setting(left.setting.model_copy(update={"problems": problems}))


@dataclass
class _Watch:
    """A condition, and what has become of it."""

    at: At
    settings: list[Setting]
    counts: Robust
    result: Result = "undecided"

    def add(self, fate: Fate) -> None:
        """One more image; what was decided stays so."""
        if self.result == "undecided":
            self.counts.add(fate)
            self.result = self.counts.result()
