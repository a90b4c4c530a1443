"""Who computes when: attacks take turns, and each waits when it is told to."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from brusle.studio.asked import Change


class Ended(Exception):  # noqa: N818 - it is no error of anybody
    """Somebody has ended the attack."""


class Turns:
    """Attacks compute one after the other, a round each, so that none waits for long.

    A victim is asked by one attack at a time, and what it may set for the whole process is as it
    was before the next one asks.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._waiting: deque[object] = deque()
        self._taken = False

    def take(self) -> None:
        """Wait until all who came before have had their turn."""
        me = object()
        with self._change:
            self._waiting.append(me)
            self._change.wait_for(lambda: not self._taken and self._waiting[0] is me)
            self._waiting.popleft()
            self._taken = True

    def give(self) -> None:
        """It is the next one's turn."""
        with self._change:
            self._taken = False
            self._change.notify_all()


class Control:
    """What somebody wants a running attack to do.

    Args:
        pace: queries in a second; 0 is as fast as it goes.

    Attributes:
        ended: it is to go no further.
    """

    def __init__(self, pace: float) -> None:
        self._change = threading.Condition()
        self._pace, self._due = pace, 0.0
        self._paused, self._steps, self.ended = False, 0, False

    def want(self, asked: Change) -> None:
        """From another thread."""
        with self._change:
            if asked.do == "pace":
                self._pace, self._due = asked.pace, 0.0
            elif asked.do == "step":
                self._paused, self._steps = True, self._steps + 1
            elif asked.do == "end":
                self.ended = True
            else:
                self._paused, self._steps = asked.do == "pause", 0
            self._change.notify_all()

    def end(self) -> None:
        """Go no further."""
        self.want(Change(do="end"))

    def hold(self, on_pause: Callable[[bool], None]) -> None:
        """Between two queries: wait as long as is wanted.

        Args:
            on_pause: called with whether the attack waits until it is told to go on.

        Raises:
            Ended: it is to go no further.
        """
        with self._change:
            while self._must_wait(on_pause):
                pass
            if self.ended:
                raise Ended
            now = time.monotonic()
            self._due = max(now, self._due + 1 / self._pace) if self._pace else now

    def _must_wait(self, on_pause: Callable[[bool], None]) -> bool:
        """Wait until something changes or the next query is due; False if there is no need to."""
        if self.ended:
            return False
        if self._paused and self._steps:
            self._steps -= 1
            return False
        on_pause(self._paused)
        left = self._due - time.monotonic()
        if not self._paused and left <= 0:
            return False
        self._change.wait(None if self._paused else left)
        return True
