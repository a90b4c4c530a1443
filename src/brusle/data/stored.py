"""Data sets in files of a fixed format: where they lie, and reading their bytes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray

from brusle.errors import DataError, InputError
from brusle.names import Name


def cache_dir() -> Path:
    """The user's cache folder for brusle, or what the variable ``BRUSLE_CACHE`` says."""
    given = os.environ.get("BRUSLE_CACHE")
    return Path(given).expanduser() if given else Path(platformdirs.user_cache_dir("brusle"))


def split_of(name: Name) -> str:
    """The split that ``name`` asks for."""
    if name.rest not in ("test", "train"):
        raise InputError(
            f"data {name.text!r} names no split: write {name.kind}:test or {name.kind}:train"
        )
    return name.rest


def data_folder(name: Name, title: str, inner: str) -> Path:
    """The folder of a data set: the option ``dir``, or its place in the cache.

    Args:
        name: as given to `load`; its options are all taken here.
        title: what people call the data set.
        inner: the folder in its archive, which may be there or not.
    """
    given = name.take("dir")
    name.done()
    folder = Path(given).expanduser() if given else cache_dir() / name.kind
    if given and not folder.is_dir():
        raise DataError(f"{folder} is no folder: check the option dir of {name.text!r}")
    if not folder.is_dir():
        raise DataError(
            f"{title} is not in {folder}: run `brusle data fetch {name.kind}`, or give ?dir="
        )
    return folder / inner if (folder / inner).is_dir() else folder


def file_bytes(path: Path, unit: int) -> NDArray[np.uint8]:
    """A file that consists of records of ``unit`` bytes, as ``(n, unit)``; read when it is used."""
    try:
        size = path.stat().st_size
        if not size or size % unit:
            raise DataError(
                f"{path} has {size} bytes, which is no multiple of {unit}: fetch it again"
            )
        return np.memmap(path, np.uint8, mode="r").reshape(-1, unit)
    except OSError as error:
        raise DataError(f"cannot open {path}: {error.strerror}") from error
