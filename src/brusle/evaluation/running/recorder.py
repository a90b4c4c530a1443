"""Stores rows as they come, and tells how far every setting is."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from brusle.evaluation.record import Row
from brusle.evaluation.running.display import OnSetting
from brusle.evaluation.running.journalling import note_vocabulary
from brusle.evaluation.running.shards import Shard, Unfinished
from brusle.evaluation.storing.pending import Pending
from brusle.evaluation.storing.store import Store
from brusle.session import Progress
from brusle.vocabulary import Vocabulary


class Recorder:
    """The `brusle.evaluation.running.engines.Sink` of an evaluation.

    Problems are shown as finished when they are stored, not when their search has ended: what was
    shown is on the disk. Labels get their names before the rows that have them. Several threads may
    use it at once.
    """

    def __init__(
        self,
        store: Store,
        unfinished: Sequence[Unfinished],
        pending: Pending | None = None,
        on_progress: OnSetting | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self._store, self._pending, self._on_progress = store, pending, on_progress
        self._vocabulary, self._lock = vocabulary, threading.Lock()
        self._tallies = {left.setting.key: _Tally(left) for left in unfinished}

    def keep(self, shard: Shard, rows: list[Row], traces: dict[int, bytes]) -> None:
        """Store rows of a shard, and their traces by problem."""
        with self._lock:
            if self._vocabulary is not None:
                note_vocabulary(self._store, self._vocabulary)
            self._store.add_rows(shard.setting.number, rows, traces)
            if self._pending is not None:
                self._pending.forget(shard.setting.key, [row.problem for row in rows])
            self._tallies[shard.setting.key].add(shard, rows)
            self._tell(shard)

    def show(self, shard: Shard, progress: Progress) -> None:
        """How far a shard is."""
        with self._lock:
            self._tallies[shard.setting.key].shards[shard.number] = progress
            self._tell(shard)

    def _tell(self, shard: Shard) -> None:
        if self._on_progress is not None:
            self._on_progress(shard.setting, self._tallies[shard.setting.key].progress)


class _Tally:
    """The progress of shards, added up to that of their setting.

    Attributes:
        shards: progress by number of the shard.
    """

    def __init__(self, left: Unfinished) -> None:
        self._setting, self._rows = left.setting, len(left.rows)
        self._stored, self._fooled = left.stored, left.fooled
        self.shards: dict[int, Progress] = {}
        self._left: dict[int, int] = {}  # of a shard, what is not stored yet

    def add(self, shard: Shard, rows: list[Row]) -> None:
        """Rows have been stored."""
        self._stored += len(rows)
        self._fooled += sum(row.status == "success" for row in rows)
        self._left[shard.number] = self._left.get(shard.number, len(shard)) - len(rows)
        # where no image could be attacked, no round was reported
        known = self.shards.setdefault(shard.number, Progress(0, len(shard), 0, 0, 0))
        if not self._left[shard.number]:
            self.shards[shard.number] = replace(known, remaining=0)  # it may end before its limit

    @property
    def progress(self) -> Progress:
        """Of the setting; what is not begun yet may take as many queries as it is allowed."""
        begun = self.shards.values()
        ahead = self._rows - sum(part.total for part in begun)
        return Progress(
            finished=self._stored,
            total=self._setting.problems,
            successes=self._fooled,
            queries=sum(part.queries for part in begun),
            remaining=sum(part.remaining for part in begun) + ahead * self._setting.queries,
        )
