"""The process ends when brusle says so, and with brusle's exit code."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

_REAL_EXIT = os._exit
_LOCK = threading.Lock()
_guards: list[int] = []  # processes that were guarded: a child of one may exit as it likes
_left_alone: list[threading.Thread] = []


@contextmanager
def no_hard_exit() -> Iterator[None]:
    """``os._exit`` raises ``SystemExit`` instead: its code must not be taken for a result's."""
    with _LOCK:
        _guards.append(os.getpid())
        os._exit = _exit
    try:
        yield
    finally:
        with _LOCK:
            _guards.pop()
            if not _guards:
                os._exit = _REAL_EXIT


def _exit(status: int) -> NoReturn:
    if os.getpid() in _guards:
        raise SystemExit(status)
    _REAL_EXIT(status)


def leave_alone(thread: threading.Thread) -> None:
    """A daemon thread is not waited for any more, whatever it does."""
    _left_alone.append(thread)


def end(code: int, others: set[threading.Thread]) -> NoReturn:
    """End the process; threads other than ``others`` that go on do not keep it alive.

    Python would wait for a victim's threads, and might crash in those that were left alone.
    """
    new = [t for t in threading.enumerate() if t not in others]
    stay = [t for t in new if not t.daemon]
    for thread in stay:
        thread.join(timeout=1)
    if any(t.is_alive() for t in (*stay, *(t for t in new if t in _left_alone))):
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # it may be closed
                stream.flush()
        _REAL_EXIT(code)
    sys.exit(code)
