"""On which terms a service is asked: who allows it, how fast, how often, and for how much money."""

from __future__ import annotations

import re
from dataclasses import dataclass

from brusle.errors import InputError

_PERIODS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "hour": 3600.0}


@dataclass(frozen=True)
class Pace:
    """So many images in so many seconds, at most, wherever the seconds begin.

    Attributes:
        images: how many.
        seconds: in how much time.
    """

    images: int
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Pace:
        """A pace written as ``1800/min`` or ``10/s``."""
        match = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\w+)\s*", text)
        if match is None or not int(match[1]) or match[2] not in _PERIODS:
            raise InputError(f"rate {text!r} is none: write it as 1800/min, 10/s or 5000/h")
        return cls(int(match[1]), _PERIODS[match[2]])

    def __str__(self) -> str:
        unit = next(name for name, seconds in _PERIODS.items() if seconds == self.seconds)
        return f"{self.images}/{unit}"


@dataclass(frozen=True)
class Terms:
    """What the user allows; everything that is sent is counted against it, retries included.

    Attributes:
        authorised: the user says that they may test this service. A service on this machine
            (loopback) needs no such word.
        rate: most images sent in a time; None is no limit.
        concurrency: most calls that are under way at once.
        timeout: most seconds that one call may take.
        price: what one image costs, in any currency; 0 if nothing.
        budget: most money; None is no limit.
        requests: most images sent; None is no limit.
        retries: how often a call that met the service's trouble is made again.
        patience: most seconds of waiting between the tries of one call.
        canary: after how many images the canary is asked again; 0 is never.
    """

    authorised: bool = False
    rate: Pace | None = None
    concurrency: int = 16
    timeout: float = 30.0
    price: float = 0.0
    budget: float | None = None
    requests: int | None = None
    retries: int = 8
    patience: float = 120.0
    canary: int = 500

    def __post_init__(self) -> None:
        if self.budget is not None and self.price <= 0:
            raise InputError("a budget needs a price: give --price, as in --price 1.5/1000")
        if self.concurrency < 1:
            raise InputError(f"concurrency is {self.concurrency}: it must be at least 1")

    @property
    def most(self) -> int | None:
        """Most images that may be sent, by requests and money; None is no limit."""
        caps = [] if self.requests is None else [self.requests]
        if self.budget is not None:
            # a hundredth of a cent apart is the same money
            caps.append(int(self.budget / self.price + 1e-9))
        return min(caps, default=None)


def parse_price(text: str) -> float:
    """A price of one image, written as ``1.5/1000`` (for a thousand) or ``0.002``."""
    amount, _, count = text.partition("/")
    try:
        price = float(amount) / (float(count) if count else 1.0)
    except (ValueError, ZeroDivisionError):
        price = -1.0
    if not 0 <= price < float("inf"):
        raise InputError(f"price {text!r} is none: write it as 1.5/1000 or 0.002")
    return price
