"""Images leave one after the other, so that no stretch of time sees more of them than allowed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from brusle.terms import Pace

MARGIN = 0.1  # seconds by which images may overtake each other on their way


class Pacer:
    """Lets images go at a `Pace`; to be used on one event loop.

    They go evenly: a service that counts from the full minute, and one that counts the last sixty
    seconds, see the same. Whoever comes first goes first.

    Args:
        pace: the pace; None is no limit.
        recent: when (``time.time()``) how many images were sent before, the oldest first.
        clock: seconds from any beginning.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        pace: Pace | None,
        recent: Iterable[tuple[float, int]] = (),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pace, self._clock, self._sleep = pace, clock, sleep
        self._lock = asyncio.Lock()
        self._left: deque[tuple[float, int]] = deque()
        self._next = clock()
        self.take_up(recent)

    def take_up(self, recent: Iterable[tuple[float, int]]) -> None:
        """Count what was sent by others, too, as before a restart."""
        now, past = self._clock(), time.time()
        before = [(now - max(0.0, past - when), images) for when, images in recent]
        self._left = deque(sorted([*self._left, *before]))
        if before:
            when, images = before[-1]
            self._next = max(self._next, when + images * self._interval)

    async def turn(self, images: int) -> None:
        """Wait until so many images may leave, and count them as gone."""
        if self._pace is None:
            return
        async with self._lock:
            while (wait := self._ready(images) - self._clock()) > 0:
                await self._sleep(wait)
            now = self._clock()
            self._left.append((now, images))
            # a wait that was a little too long is made up for
            self._next = max(self._next, now - MARGIN / 2) + images * self._interval

    @property
    def _interval(self) -> float:
        """Seconds between two images; with one fewer than allowed, none is at the very edge."""
        if self._pace is None:
            return 0.0
        return (self._pace.seconds + MARGIN) / max(self._pace.images - 1, 1)

    def _ready(self, images: int) -> float:
        """When so many may leave."""
        assert self._pace is not None
        whole = self._pace.seconds + MARGIN
        while self._left and self._left[0][0] + whole <= self._clock():
            self._left.popleft()
        ready, over = self._next, sum(n for _, n in self._left) + images - self._pace.images
        for when, gone in self._left:
            if over <= 0:
                break
            ready, over = max(ready, when + whole), over - gone
        return ready
