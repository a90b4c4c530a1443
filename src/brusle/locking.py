"""Locks: one writer at a time, and the system lets go with the process."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from brusle.errors import DataError

LOCK = "results.lock"
_TRIES = 20  # to lock a folder, for a second in all


def lock_folder(folder: Path) -> IO[str]:
    """The lock of a run folder, for its only writer; closing it lets go."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write to the run folder {folder}: {error.strerror}") from error
    return lock_file(folder / LOCK, f"the run folder {folder}")


def lock_file(path: Path, guarded: str) -> IO[str]:
    """A lock that lies in the file ``path``; closing it lets go.

    Args:
        path: the file, which is made if there is none.
        guarded: what only the holder of the lock writes to, for messages.
    """
    try:
        lock = _open(path)
    except OSError as error:
        raise DataError(f"cannot write to {guarded}: {error.strerror}") from error
    try:
        _acquire(lock)
    except OSError as error:
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise DataError(
            f"another run (process {owner}) writes to {guarded}: wait for it, or choose another "
            f"place (--out)"
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _open(path: Path) -> IO[str]:
    """The lock file; a link is not followed, since what it leads to would be written over."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    lock = os.fdopen(number, "r+")
    if not stat.S_ISREG(os.fstat(number).st_mode):
        lock.close()
        raise DataError(f"{path} is no plain file: remove it")
    return lock


def _acquire(lock: IO[str]) -> None:
    """Lock a file; who looks at the lock holds it for a moment, too, so one try is not enough."""
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if not left:
                raise
            time.sleep(0.05)


def is_written(folder: str | Path) -> bool:
    """Whether a run holds the lock of the folder at this moment."""
    path = Path(folder) / LOCK
    if not path.is_file():
        return False  # nothing was ever written here
    try:
        with path.open() as lock:
            # shared, so that two who look do not take each other for a run; closing releases it
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def identity(path: Path) -> tuple[int, int] | None:
    """Which file it is; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def require_in_place(files: Mapping[Path, tuple[int, int] | None]) -> None:
    """Raise if somebody has taken a file away: SQLite would write on, to no file at all.

    Args:
        files: the files that must stay, and which they are (`identity`).
    """
    for path, known in files.items():
        if identity(path) != known:
            raise DataError(
                f"{path.parent} was removed or renamed, or its {path.name} was, while this run "
                f"wrote to it: it stops here. If it was renamed, go on with that --out"
            )
