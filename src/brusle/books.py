"""What was sent to a service and what became of it, written down before it is sent.

Every image that leaves is counted against the user's `Terms`, whether it is answered or not: a
service may charge for both. Books that lie in a file (`brusle.journal`) survive a kill, so that the
limits hold over all lives of a run.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from brusle.errors import VictimUnavailable
from brusle.terms import Terms

Outcome = Literal["answered", "refused", "lost"]


class SpendingLimit(VictimUnavailable):
    """One more image would exceed what the user allows: the run stops, and everything is kept."""

    def __init__(self, message: str) -> None:
        super().__init__(message, final=True)


@dataclass(frozen=True)
class Totals:
    """Images by what became of them.

    Attributes:
        sent: all that were ever sent; the other three, and what is under way.
        answered: with a usable answer.
        refused: with an error about the image, which is an answer, too.
        lost: without a usable answer: busy, broken off, or nonsense.
    """

    sent: int = 0
    answered: int = 0
    refused: int = 0
    lost: int = 0

    def plus(self, outcome: Outcome, images: int) -> Totals:
        """With so many more of an outcome."""
        return replace(self, **{outcome: getattr(self, outcome) + images})


class Books(Protocol):
    """Where everything that is sent is written down."""

    def open(self, images: int, terms: Terms) -> int:
        """So many images are about to be sent in one call; returns the number of the call.

        Raises:
            SpendingLimit: that would be more than the terms allow.
        """

    def close(self, call: int, outcome: Outcome) -> None:
        """What became of a call."""

    @property
    def totals(self) -> Totals:
        """All so far."""

    @property
    def recent(self) -> list[tuple[float, int]]:
        """When (``time.time()``) how many images were sent, in the last hour, the oldest first."""


def check_limit(sent: int, images: int, terms: Terms) -> None:
    """Raise if ``images`` more than the ``sent`` ones exceed the terms."""
    if terms.most is None or sent + images <= terms.most:
        return
    if terms.requests is not None and sent + images > terms.requests:
        raise SpendingLimit(
            f"{sent} images were sent, and --requests {terms.requests} allows no more: allow more "
            f"to go on"
        )
    raise SpendingLimit(
        f"{sent * terms.price:.2f} were spent on {sent} images, and --budget {terms.budget:g} "
        f"allows no more: allow more to go on"
    )


class BooksInMemory:
    """Books that are gone with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[int] = []
        self._totals = Totals()
        self.recent: list[tuple[float, int]] = []

    def open(self, images: int, terms: Terms) -> int:
        """As in `Books`."""
        with self._lock:
            check_limit(self._totals.sent, images, terms)
            self._totals = replace(self._totals, sent=self._totals.sent + images)
            self._calls.append(images)
            now = time.time()
            last_hour = [sent for sent in self.recent if sent[0] > now - 3600]
            self.recent = [*last_hour, (now, images)]
            return len(self._calls) - 1

    def close(self, call: int, outcome: Outcome) -> None:
        """As in `Books`."""
        with self._lock:
            self._totals = self._totals.plus(outcome, self._calls[call])

    @property
    def totals(self) -> Totals:
        """As in `Books`."""
        return self._totals
