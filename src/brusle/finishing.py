"""Who writes what people look at first, when all attacks of a run are stored.

An evaluation does not know tables and pictures, which are made of runs. The top of the package
knows both and says here who writes, so that every way to an evaluation (the command,
`brusle.evaluate`, a plan, a reproduction) leaves the same files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Writer = Callable[[Any, Path], None]  # of a `brusle.Run` and its folder

_writers: list[Writer] = []


def finish_with(writer: Writer) -> None:
    """Let ``writer`` be called with every run that is finished."""
    _writers[:] = [writer]


def write_out(run: Any, folder: Path) -> None:
    """Write the files of a finished run, while its folder is still locked."""
    for writer in _writers:
        writer(run, folder)
