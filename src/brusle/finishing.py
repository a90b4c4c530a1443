"""Who writes what people look at, when all attacks of a run are stored.

An evaluation does not know tables, pictures and trackers, which are made of runs. The top of the
package knows both and says here who writes, so that every way to an evaluation (the command,
`brusle.evaluate`, a plan, a reproduction) leaves the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

Writer = Callable[[Any, Path], None]  # of a `brusle.Run` and its folder


class Tracker(Protocol):
    """Where runs are logged to, under a name that a user has given."""

    name: str

    def log(self, run: Any) -> Any:
        """Write what is stored of a `brusle.Run`; returns what became of it."""


Opener = Callable[[Iterable[str]], list[Tracker]]

_writers: list[Writer] = []
_openers: list[Opener] = []


def finish_with(writer: Writer) -> None:
    """Let ``writer`` be called with every run that is finished."""
    _writers[:] = [writer]


def log_with(opener: Opener) -> None:
    """Let ``opener`` open the trackers that users name."""
    _openers[:] = [opener]


def write_out(run: Any, folder: Path) -> None:
    """Write the files of a finished run, while its folder is still locked."""
    for writer in _writers:
        writer(run, folder)


def open_trackers(names: Iterable[str]) -> list[Tracker]:
    """The trackers that are named; raises if one cannot be used."""
    return [tracker for opener in _openers for tracker in opener(names)]
