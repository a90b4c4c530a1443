"""Files that are no files: pipes and devices."""

from __future__ import annotations

from pathlib import Path

from brusle.errors import DataError


def refuse_special(path: str | Path) -> None:
    """Raise if ``path`` is a pipe or a device: reading one may never end.

    What is not there, or is a folder, is left to whoever opens it.
    """
    place = Path(path)
    if place.exists() and not place.is_file() and not place.is_dir():
        raise DataError(f"{path} is a pipe or a device: give a file")
