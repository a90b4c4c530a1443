"""One call of a service: how it stands in the books, and how often it is tried."""

from __future__ import annotations

import asyncio
import hashlib

from brusle.books import Books, Outcome
from brusle.errors import VictimUnavailable
from brusle.terms import Terms
from brusle.victims.remote.masking import masked
from brusle.victims.remote.service import Failure

_FIRST, _LONGEST = 0.5, 30.0  # seconds that are waited at most the first time, and any time
_NONSENSE = 2  # times that nonsense is asked for again


class Booking:
    """One call in the books.

    Attributes:
        outcome: what becomes of it; lost unless somebody says otherwise.
    """

    def __init__(self, books: Books, images: int, terms: Terms) -> None:
        self._books, self._images, self._terms = books, images, terms
        self._call: int | None = None
        self.outcome: Outcome = "lost"

    async def open(self) -> None:
        """The call leaves.

        To write that down is to wait for the disk, and others need not wait along. Whoever is
        interrupted meanwhile is told when it is written down, so that it can be closed.
        """
        writing = asyncio.ensure_future(
            asyncio.to_thread(self._books.open, self._images, self._terms)
        )
        try:
            self._call = await asyncio.shield(writing)
        except asyncio.CancelledError:
            self._call = await writing
            raise

    def close(self) -> None:
        """The call has ended; nothing is booked if it never left."""
        if self._call is not None:
            self._books.close(self._call, self.outcome)


def unavailable(name: str, failure: Failure, tried: str = "") -> VictimUnavailable:
    """What is raised when a service is given up, in one line."""
    if failure.fault == "refused":
        text = f"{name} refuses to answer ({failure.reason}): check its address and your rights"
    else:
        does = "answers nonsense" if failure.fault == "nonsense" else "does not answer"
        text = f"{name} {does} ({failure.reason}){tried}"
    if failure.retry_after:
        text += f"; it asks to wait {failure.retry_after:.0f} s"
    return VictimUnavailable(masked(text), final=True)


class Waits:
    """The waits between the tries of one call: twice as long each time at most, and any less.

    Attributes:
        count: tries that failed, with a wait behind each.
    """

    def __init__(self, terms: Terms, number: int) -> None:
        self._terms, self._number = terms, number
        self.count, self._seconds, self._nonsense = 0, 0.0, 0

    def next(self, failure: Failure) -> float | None:
        """Seconds until the next try; None if the patience is over."""
        left = self._terms.patience - self._seconds
        asked = failure.retry_after or 0.0
        self._nonsense += failure.fault == "nonsense"
        over = self.count >= self._terms.retries or self._nonsense > _NONSENSE
        if over or left <= 0 or asked > left:
            return None
        spread = self._chance() * min(_LONGEST, _FIRST * 2.0**self.count)
        pause = min(left, asked + spread)
        self.count, self._seconds = self.count + 1, self._seconds + pause
        return pause

    @property
    def told(self) -> str:
        """How often and how long was tried."""
        return f", tried {self.count + 1} times in {self._seconds:.0f} s" if self.count else ""

    def _chance(self) -> float:
        """From 0 to 1: callers that failed together do not come back together."""
        digest = hashlib.sha256(f"{self._number} {self.count}".encode()).digest()
        return int.from_bytes(digest[:4], "big") / 2**32
