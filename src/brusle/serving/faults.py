"""What goes wrong on purpose: a service that is slow, busy, broken, or hangs up.

What happens to a call is a function of the seed and the number of the call, so that the same
rehearsal can be had again.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

from brusle import rng
from brusle.errors import InputError
from brusle.terms import Pace

T = TypeVar("T")
_UNITS = {"ms": 1e-3, "s": 1.0}
_FAILURES = (429, 500, 503)
_WAITS = (None, 0, 1)  # seconds of Retry-After
_ONE_IN_A_HUNDRED = NormalDist().inv_cdf(0.99)


@dataclass(frozen=True)
class Latency:
    """How long an answer takes, at least: lognormal, or constant if both numbers are the same.

    Attributes:
        median: seconds.
        slow: seconds that one answer in a hundred takes longer than.
    """

    median: float
    slow: float

    @classmethod
    def parse(cls, text: str) -> Latency:
        """A latency written as ``50ms`` or ``lognormal:50ms,500ms``."""
        kind, _, rest = text.rpartition(":")
        times = [_seconds(part) for part in rest.split(",")]
        known = [seconds for seconds in times if seconds is not None]
        if len(known) < len(times) or (kind, len(times)) not in (("", 1), ("lognormal", 2)):
            raise InputError(
                f"latency {text!r} is none: write it as 50ms, 0.5s or lognormal:50ms,500ms "
                f"(median and 99th percentile)"
            )
        if known[-1] < known[0] or known[0] <= 0:
            raise InputError(f"latency {text!r}: the median is above 0, and the tail not below it")
        return cls(known[0], known[-1])

    def draw(self, chance: float) -> float:
        """Seconds, by a number from (0, 1)."""
        spread = math.log(self.slow / self.median) / _ONE_IN_A_HUNDRED
        return self.median * math.exp(spread * NormalDist().inv_cdf(chance))


@dataclass(frozen=True)
class Fate:
    """What happens to one call.

    Attributes:
        latency: no answer leaves sooner than so many seconds after the call came.
        status: of the failure; None if the call is answered.
        retry_after: seconds to wait, if the failure says it.
        drop: the connection is closed instead of an answer.
        late: what goes wrong does so when the victim was asked already.
    """

    latency: float = 0.0
    status: int | None = None
    retry_after: int | None = None
    drop: bool = False
    late: bool = False


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong.

    Attributes:
        latency: how long answers take; None adds nothing.
        rate: most images in a time; a call beyond it is refused. None is no limit.
        fail: share of calls that answer 429, 500 or 503.
        drop: share of calls whose connection is closed without an answer.
        seed: of all choices.
    """

    latency: Latency | None = None
    rate: Pace | None = None
    fail: float = 0.0
    drop: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.fail, self.drop) < 0 or self.fail + self.drop > 1:
            raise InputError(
                f"fail is {self.fail:g} and drop {self.drop:g}: they are shares of the calls, from "
                f"0 to 1 together"
            )

    def fate(self, number: int) -> Fate:
        """What happens to the call of this number."""
        latency = 0.0 if self.latency is None else self.latency.draw(self.chance(number, "latency"))
        which, late = self.chance(number, "which"), self.chance(number, "late") < 0.5
        if which < self.fail:
            status = _one_of(_FAILURES, self.chance(number, "status"))
            wait = _one_of(_WAITS, self.chance(number, "wait")) if status == 429 else None
            return Fate(latency, status, wait, late=late)
        return Fate(latency, drop=which < self.fail + self.drop, late=late)

    def chance(self, number: int, purpose: str) -> float:
        """A number from (0, 1)."""
        text = f"{self.seed} {number} {purpose}"
        return ((rng.content_id(text.encode()) >> 11) + 0.5) * 2.0**-52

    def key(self, number: int, image: int) -> int:
        """Of a randomised victim, which draw an image of a call is."""
        return rng.content_id(f"{self.seed} {number} image {image}".encode()) >> 1


class Gate:
    """Lets no more images through than a pace allows, wherever its seconds begin."""

    def __init__(self, pace: Pace | None) -> None:
        self._pace = pace
        self._admitted: deque[tuple[float, int]] = deque()

    def wait(self, images: int) -> float:
        """Seconds until so many images are let through; 0 lets them through now."""
        if self._pace is None:
            return 0.0
        now = time.monotonic()
        while self._admitted and self._admitted[0][0] <= now - self._pace.seconds:
            self._admitted.popleft()
        excess = sum(count for _, count in self._admitted) + images - self._pace.images
        if excess <= 0:
            self._admitted.append((now, images))
            return 0.0
        for came, count in self._admitted:
            excess -= count
            if excess <= 0:
                return came + self._pace.seconds - now
        return self._pace.seconds


def _seconds(text: str) -> float | None:
    match = re.fullmatch(r"\s*(\d{1,6}(?:\.\d{1,9})?)(ms|s)\s*", text)
    return None if match is None else float(match[1]) * _UNITS[match[2]]


def _one_of(things: Sequence[T], chance: float) -> T:
    return things[int(chance * len(things))]
