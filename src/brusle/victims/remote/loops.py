"""The event loop that all calls of services run on: one of the process, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

_ASIDE = 64  # threads, made as they are needed: most of them wait for the disk, and it for them
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def shared() -> asyncio.AbstractEventLoop:
    """The loop of this process; it does not keep the process alive."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = _new_loop()
            _loop.set_default_executor(ThreadPoolExecutor(_ASIDE, "brusle-aside"))
            run = _loop.run_forever
            threading.Thread(target=run, name="brusle-remote", daemon=True).start()
        return _loop


def _new_loop() -> asyncio.AbstractEventLoop:
    """A quick one where there is one: the loop is what every image passes."""
    try:
        import uvloop
    except ImportError:  # as on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def is_mine(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the loop of this process, and not of the one that it was forked from."""
    return loop is _loop


def _forget() -> None:
    """A child has none of its parent's threads, and the lock may have been held by one."""
    global _lock, _loop
    _lock, _loop = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)
