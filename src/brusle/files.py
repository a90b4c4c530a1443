"""Files: their names, that they are files at all, and writing them as a whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from brusle.errors import DataError

_MOST_BYTES = 100  # of a name: with a hash, a target and an ending, all file systems take it
_MOST_IN_FOLDER = 255
_SAFE = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?")
_HASHED = re.compile(r".*-[0-9a-f]{12}")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # on Windows, with any ending


def file_name(name: str, otherwise: str = "image") -> str:
    """The name of a file for something that is called ``name``, whatever that is.

    A name of small letters, digits, and ``.``, ``_`` and ``-`` between them is taken as it is.
    What can be kept of any other is followed by a hash of the whole, so that different names stay
    different, also where capitals and the forms of accents do not count, and the name of one
    file does not depend on others.

    Args:
        name: any text.
        otherwise: what to write if nothing can be kept.
    """
    # a name that looks hashed could be that of another
    doubtful = len(name) > _MOST_BYTES or _HASHED.fullmatch(name) or _RESERVED.fullmatch(name)
    if _SAFE.fullmatch(name) and not doubtful:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    kept = re.sub(r"[^\w-]+", "-", name).encode()[:_MOST_BYTES].decode(errors="ignore")
    return f"{kept.strip('-') or otherwise}-{digest}"


def slug(text: str) -> str:
    """A part of a file name that tells people of ``text``; another text may have the same."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def name_beside(path: Path, ending: str) -> Path:
    """A file beside ``path`` whose name is that of ``path`` with another ``ending``."""
    stem = path.stem
    if len(os.fsencode(stem + ending)) > _MOST_IN_FOLDER:
        stem = file_name(stem)
    return path.with_name(stem + ending)


def require_file(path: Path) -> None:
    """Raise unless ``path`` is a file with bytes to read: a pipe would be waited for."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot open {path}: {reason}") from error
    if stat.S_ISDIR(mode):
        raise DataError(f"cannot open {path}: {os.strerror(errno.EISDIR)}")
    refuse_special(path)


def refuse_special(path: str | Path) -> None:
    """Raise if ``path`` is a pipe or a device; what is not there is left to whoever opens it."""
    place = Path(path)
    if place.exists() and not place.is_file() and not place.is_dir():
        raise DataError(f"cannot open {path}: it is no file but a pipe or a device; remove it")


def require_plain(place: Path) -> None:
    """Raise if ``place`` is, or holds, more than files and folders.

    What is written to a link could go anywhere, and what is written to a pipe nobody may read.
    """
    below = (Path(top) / name for top, *names in os.walk(place) for name in chain(*names))
    for path in (place, *below):
        if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
            raise DataError(f"{path} is no plain file but a link, a pipe or a device: remove it")


@contextmanager
def written(path: str | Path, durable: bool = True) -> Iterator[Path]:
    """Where to write a file, which then takes the place of ``path`` at once.

    Whoever looks finds the old file or the new one, whole, also after a kill. If writing fails,
    nothing is left behind. The folder is made if there is none. What is no file of its own (a link,
    a pipe, a device) is written to as it is.

    Args:
        path: the file.
        durable: wait until the disk has it, so that it is whole after a power failure, too.
    """
    path = Path(path)
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            yield path
            return
        beside = _made_beside(path)
        try:
            yield beside
            _put_in_place(beside, path, durable)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
    except OSError as error:
        remedy = "make room" if error.errno in _FULL else "choose another place"
        raise DataError(f"cannot write {path}: {error.strerror or error}; {remedy}") from error


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, as `written` does."""
    with written(path) as file:
        file.write_text(text, encoding="utf-8")


def _made_beside(path: Path) -> Path:
    """A new empty file in the folder of ``path``.

    It has a name of its own, so that two who write do not disturb each other, and the ending of
    ``path``, which tells writers of pictures the format.
    """
    if path.exists():
        path.open("ab").close()  # who must not write to a file must not replace it either
    beside = path.with_name(f".brusle-{secrets.token_hex(8)}{path.suffix}")
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _mode(path) or 0o666))
    return beside


def _mode(path: Path) -> int | None:
    """The permissions of a file; None if there is none."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _put_in_place(beside: Path, path: Path, durable: bool) -> None:
    mode = _mode(path)
    if mode is not None:
        beside.chmod(mode)
    if durable:
        _synchronise(beside, os.O_WRONLY)
    os.replace(beside, path)
    if durable:
        with suppress(OSError):  # not every file system has folders that can be waited for
            _synchronise(path.parent, os.O_RDONLY)


def _synchronise(path: Path, flags: int) -> None:
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)
