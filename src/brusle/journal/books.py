"""The books of a journal: every call that was made, also by those who were killed since."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import replace
from typing import Any, get_args

from brusle.books import Outcome, Totals, check_limit
from brusle.database import Damaged, checksum, require_unchanged, with_checksum
from brusle.journal.file import Changes, JournalFile
from brusle.terms import Terms

SCHEMA = """
CREATE TABLE calls (
    number INTEGER PRIMARY KEY, moment REAL NOT NULL, images INTEGER NOT NULL, outcome TEXT,
    checksum TEXT NOT NULL
);
"""
_OPEN = "INSERT OR IGNORE INTO calls VALUES (?, ?, ?, ?, ?)"
_CLOSE = "UPDATE calls SET outcome = ?, checksum = ? WHERE number = ?"
_HOUR = 3600.0


class JournalBooks:
    """As in `brusle.books.Books`, in the table of a journal.

    A call is in the file before `open` returns. What became of it is written with whatever is
    written next: a call of which nobody knows that counts as lost.

    Args:
        file: the journal's.
        writing: calls that are still open were those of a process that has been killed.
    """

    def __init__(self, file: JournalFile, writing: bool) -> None:
        self._file, self._lock = file, threading.Lock()
        self._calls, self._totals = 0, Totals()
        self._open: dict[int, tuple[float, int]] = {}
        self._recent: deque[tuple[float, int]] = deque()
        with file.explained():
            for row in file.scan("SELECT * FROM calls ORDER BY number"):
                self._take_in(row)
        if writing and self._open:
            for call in list(self._open):
                self.close(call, "lost")

    def open(self, images: int, terms: Terms) -> int:
        """As in `Books`; the call is on the disk."""
        with self._lock:
            check_limit(self._totals.sent, images, terms)
            call, moment = self._calls, time.time()
            self._begin(call, moment, images)
            record = with_checksum(call, moment, images, None)
            ticket = self._file.hand_in([(_OPEN, [record])])
        self._file.wait_for(ticket)
        return call

    def close(self, call: int, outcome: Outcome) -> None:
        """As in `Books`."""
        with self._lock:
            moment, images = self._open.pop(call)
            self._totals = self._totals.plus(outcome, images)
            self._file.hand_in(_closed(call, moment, images, outcome))

    @property
    def totals(self) -> Totals:
        """As in `Books`."""
        return self._totals

    @property
    def recent(self) -> list[tuple[float, int]]:
        """As in `Books`."""
        with self._lock:
            self._forget_old()
            return list(self._recent)

    def _begin(self, call: int, moment: float, images: int) -> None:
        self._calls = call + 1
        self._open[call] = moment, images
        self._totals = replace(self._totals, sent=self._totals.sent + images)
        self._recent.append((moment, images))
        self._forget_old()

    def _forget_old(self) -> None:
        while self._recent and self._recent[0][0] < time.time() - _HOUR:
            self._recent.popleft()

    def _take_in(self, row: tuple[Any, ...]) -> None:
        """A call that is in the file."""
        require_unchanged([row], "call")
        number, moment, images, outcome, _ = row
        numbers = isinstance(moment, float) and isinstance(images, int)
        if not numbers or outcome not in (None, *get_args(Outcome)):
            raise Damaged(f"call {number} cannot be read")
        self._begin(number, moment, images)
        if outcome is not None:
            del self._open[number]
            self._totals = self._totals.plus(outcome, images)


def _closed(call: int, moment: float, images: int, outcome: Outcome) -> Changes:
    return [(_CLOSE, [(outcome, checksum(call, moment, images, outcome), call)])]
