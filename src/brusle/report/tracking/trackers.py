"""Trackers by name: ``mlflow:FOLDER?experiment=NAME``, ``wandb:PROJECT``, ..."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from brusle.environment import environment
from brusle.errors import BrusleError, DataError, InputError, first_line
from brusle.evaluation.storing.runs import Run
from brusle.names import Name, hint
from brusle.report.tracking import in_mlflow, in_tensorboard, in_wandb
from brusle.report.tracking.entries import Entries, entries_of
from brusle.report.tracking.logged import Logged
from brusle.text import shortened, shown

_LONG = 300  # letters of what a tracker complains
_PASSWORD = re.compile(r"://[^/]*@")
_SECRETS = (
    "DATABRICKS_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "WANDB_API_KEY",
)


class Writer(Protocol):
    """Writes to one place of one tracker."""

    def write(self, entries: Entries) -> Logged:
        """Write ``entries``, unless they are there."""


@dataclass(frozen=True)
class _Kind:
    """A tracker.

    Attributes:
        open: takes a name apart; raises unless the package is there. It writes nothing.
        quiet: variables of the environment while it is used: it reports on nobody.
    """

    open: Callable[[Name], Writer]
    quiet: Mapping[str, str]


_KINDS = {
    "mlflow": _Kind(in_mlflow.opened, in_mlflow.QUIET),
    "wandb": _Kind(in_wandb.opened, in_wandb.QUIET),
    "tensorboard": _Kind(in_tensorboard.opened, {}),
}


class Tracker:
    """Where runs are logged to.

    Attributes:
        name: as the user has written it.
    """

    def __init__(self, name: str) -> None:
        """Open the tracker ``name``; nothing is written yet."""
        _refuse_keys(name)
        parsed = Name.parse(name)
        if parsed.kind not in _KINDS:
            raise InputError(f"unknown tracker {parsed.kind!r}{hint(parsed.kind, _KINDS)}")
        self.name = name
        self._kind = _KINDS[parsed.kind]
        with environment(self._kind.quiet):
            self._writer = self._kind.open(parsed)
        parsed.done()

    def log(self, run: Run) -> Logged:
        """Write what is stored of ``run``; whatever fails is an error of one line."""
        with entries_of(run) as entries, environment(self._kind.quiet):
            try:
                return self._writer.write(entries)
            except BrusleError:
                raise
            except Exception as error:
                reason = _without_keys(shortened(shown(first_line(error)), _LONG))
                raise DataError(f"cannot log to {self.name}: {reason}") from None


def open_trackers(names: str | Iterable[str]) -> list[Tracker]:
    """The trackers that are named; raises before anything is written if one cannot be used."""
    several = [names] if isinstance(names, str) else names
    return [Tracker(name) for name in dict.fromkeys(several)]


def log(run: Run | str | Path, to: str | Sequence[str]) -> list[Logged]:
    """Write what a run has stored to experiment trackers.

    Args:
        run: the run, or its folder; it may be unfinished, and being written.
        to: names of trackers, as in ``"mlflow:FOLDER?experiment=NAME"``.

    Returns:
        For each tracker where the run is now.
    """
    trackers = open_trackers(to)
    if isinstance(run, Run):
        return [tracker.log(run) for tracker in trackers]
    opened = Run.open(run)
    with opened.store:
        return [tracker.log(opened) for tracker in trackers]


def _refuse_keys(name: str) -> None:
    """Raise if there is a password in a URL: it would stand in messages."""
    if _PASSWORD.search(name):
        raise InputError(
            "the address of the tracker holds a user or a password: leave them out, and set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )


def _without_keys(text: str) -> str:
    for variable in _SECRETS:
        if value := os.environ.get(variable):
            text = text.replace(value, "***")
    return text
