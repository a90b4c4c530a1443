"""The attacks that run: few at once, so that two can be compared and nobody is kept waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import torch

from brusle.errors import InputError
from brusle.studio.asked import Attempt, Change
from brusle.studio.control import Turns
from brusle.studio.live import LiveAttack
from brusle.studio.pictures import Picture

MOST = 2
_PATIENCE = 5.0  # seconds that a new attack waits for those that are ending


class Busy(InputError):  # noqa: N818 - it says what an error would only name
    """There is no room for another attack."""


class Lanes:
    """Live attacks by their numbers."""

    def __init__(self) -> None:
        self._turns, self._threads = Turns(), torch.get_num_threads()
        self._running: dict[int, LiveAttack] = {}
        self._enter, self._last = threading.Lock(), -1
        self._closed = False

    def begin(
        self, attempt: Attempt, picture: Picture, on_news: Callable[[], None]
    ) -> tuple[int, LiveAttack]:
        """Start an attack; returns its number, too."""
        attack = LiveAttack(attempt, picture, self._turns, self._threads, on_news)
        with self._enter:
            self._wait_for_room()
            self._last += 1
            self._running[self._last] = attack
            attack.start()
            return self._last, attack

    def want(self, number: int, asked: Change) -> None:
        """Change what an attack does; one that is over does nothing any more."""
        attack = self._running.get(number)
        if attack is not None:
            attack.want(asked)

    def end(self) -> None:
        """End all, and let none begin."""
        self._closed = True
        running = [*self._running.values()]
        for attack in running:
            attack.end()
        for attack in running:
            attack.end(wait=True)

    def _wait_for_room(self) -> None:
        """Attacks that were told to end may still wait for an answer."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            self._running = {at: one for at, one in self._running.items() if not one.is_over}
            if self._closed:
                raise Busy("the studio is ending")
            if len(self._running) < MOST:
                return
            is_hopeless = not any(one.is_ending for one in self._running.values())
            if is_hopeless or time.monotonic() > deadline:
                raise Busy(f"{MOST} attacks are running: end one of them first")
            time.sleep(0.01)
