"""Who writes what people look at first, when all attacks of a run are stored.

An evaluation does not know tables and pictures, which are made of runs. The top of the package
knows both and appoints a writer here, so that every way to an evaluation (the command,
`brusle.evaluate`, a plan, a reproduction) leaves the same files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Writer = Callable[[Any, Path], None]  # of a `brusle.Run` and its folder

_writers: list[Writer] = []


def on_finished(writer: Writer) -> Writer:
    """Let ``writer`` be called with every run that is finished."""
    _writers.append(writer)
    return writer


def write_out(run: Any, folder: Path) -> None:
    """Let all appointed writers do their work, while the folder is still locked."""
    for writer in _writers:
        writer(run, folder)
