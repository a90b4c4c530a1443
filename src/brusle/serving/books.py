"""What a server has received and what became of it, kept apart from what its clients say.

A call is entered when what it asks is known, and closed before its answer leaves. With a file, that
is a line of JSON for each call, so that the books can be read after a kill. They hold counts, times
and hashes of images, and nothing else of a request: no key can get in.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

Outcome = Literal["answered", "failed", "dropped", "throttled"]


@dataclass
class Call:
    """One call.

    Attributes:
        number: of the call, from 0.
        came: when (``time.monotonic()``).
        images: how many images it holds, as far as they could be counted.
        refused: how many of these got an error of their own inside of an answer.
        hashes: of the images that can be read.
        outcome: what became of the call; None while it is under way.
        status: of the answer; 0 if there was none.
    """

    number: int
    came: float
    images: int = 0
    refused: int = 0
    hashes: list[str] = field(default_factory=list)
    outcome: Outcome | None = None
    status: int = 0


class Books:
    """All calls of a server.

    Args:
        file: gets a line of JSON for each call, behind what is in it.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = None if file is None else file.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self._calls: list[Call] = []

    def open(self, came: float) -> Call:
        """A call has come."""
        with self._lock:
            call = Call(len(self._calls), came)
            self._calls.append(call)
            return call

    def close(self, call: Call, outcome: Outcome, status: int = 0) -> None:
        """What became of a call; its answer must not have left yet."""
        with self._lock:
            call.outcome, call.status = outcome, status
            if self._file is not None:
                self._file.write(json.dumps(_line(call)) + "\n")
                self._file.flush()

    def end(self) -> None:
        """No more calls."""
        if self._file is not None:
            self._file.close()

    def as_dict(self) -> dict[str, Any]:
        """The sums, as ``GET /-/books`` gives them."""
        with self._lock:
            calls = list(self._calls)
        answered = [call for call in calls if call.outcome == "answered"]
        times = Counter(one for call in answered for one in call.hashes)
        failed: Counter[str] = Counter()
        for call in calls:
            if call.outcome == "failed":
                failed[str(call.status)] += call.images
        return {
            "calls": len(calls),
            "received": _images(calls),
            "answered": _images(answered) - sum(call.refused for call in answered),
            "refused": sum(call.refused for call in answered),
            "failed": dict(sorted(failed.items())),
            "dropped": _images(call for call in calls if call.outcome == "dropped"),
            "throttled": _images(call for call in calls if call.outcome == "throttled"),
            "under_way": _images(call for call in calls if call.outcome is None),
            "distinct": len(times),
            "answered_again": sorted((n for n in times.values() if n > 1), reverse=True),
            "most_in_a_second": most_within(calls, 1),
            "most_in_a_minute": most_within(calls, 60),
        }


def hash_of(image: Tensor) -> str:
    """The SHA-256 of the pixels that the victim gets."""
    return hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest()


def most_within(calls: Sequence[Call], seconds: float) -> int:
    """The largest number of images that came in any so many seconds."""
    arrivals = sorted((call.came, call.images) for call in calls)
    most = inside = first = 0
    for came, images in arrivals:
        inside += images
        while arrivals[first][0] <= came - seconds:
            inside -= arrivals[first][1]
            first += 1
        most = max(most, inside)
    return most


def _images(calls: Iterable[Call]) -> int:
    return sum(call.images for call in calls)


def _line(call: Call) -> dict[str, Any]:
    return {
        "call": call.number,
        "time": round(time.time() - (time.monotonic() - call.came), 6),
        "images": call.images,
        "refused": call.refused,
        "outcome": call.outcome,
        "status": call.status,
        "hashes": call.hashes,
    }
