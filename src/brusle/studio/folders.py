"""Run folders: those that the user has named, and those below ``runs`` of the working directory.

They are data of others: read, shown as text, and never run or written to.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brusle.errors import BrusleError, DataError, InputError
from brusle.evaluation.record import Row, Setting
from brusle.evaluation.storing.progress import look
from brusle.evaluation.storing.rows import edits_of
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import FILE
from brusle.locking import LOCK
from brusle.report.wording import class_name
from brusle.studio.pictures import LARGEST, raw_levels
from brusle.text import shortened, shown
from brusle.tracing import Trace

BELOW = "runs"  # where the commands put run folders
ROWS = 50  # that the page shows at once
_DEPTH, _MOST = 3, 200  # how far below, and how many folders are listed
_LONG = 300  # letters of a reason


class Folders:
    """Run folders by their numbers; what is not listed yet gets one when it is named.

    Args:
        named: those that the user has named.
    """

    def __init__(self, named: Sequence[str | Path]) -> None:
        self._here = Path.cwd().resolve()
        self._below = self._here / BELOW
        self._turn = threading.Lock()
        self._known: list[Path] = []
        self._named = [Path(folder).resolve() for folder in named]
        for folder in self._named:
            look(folder)  # raises if there is no run in it
            self._number(folder)

    def listed(self) -> list[dict[str, Any]]:
        """All that can be opened, for the page."""
        found = dict.fromkeys([*self._named, *self._found()])
        return [{"run": self._number(folder), "name": self._name(folder)} for folder in found]

    def add(self, typed: str) -> int:
        """The number of a folder that somebody has typed into the page."""
        try:
            folder = (self._here / typed).resolve()
        except (OSError, ValueError, RuntimeError):  # a loop of links, or no path at all
            folder = Path()
        if not self._may_open(folder) or not _holds_run(folder):
            raise InputError(
                f"{shortened(shown(typed))} is no run folder that this page may open: name it when "
                f"you start `brusle studio`, or put it below {shown(self._below)}"
            )
        return self._number(folder)

    def progress(self, number: int) -> dict[str, Any]:
        """How far a run is."""
        folder = self._folder(number)
        found = look(folder)
        about = found["about"]
        return {
            "name": self._name(folder),
            "writing": found["writing"],
            "victim": shown(about.get("victim", "")),
            "data": shown(about.get("data", "")),
            "warnings": [shown(text) for text in about.get("warnings", {}).values()],
            "settings": [_setting(setting) for setting in found["settings"]],
        }

    def rows(self, number: int, setting: int, start: int) -> dict[str, Any]:
        """Some rows of a setting, in the order of the images."""
        with self._opened(number) as run:
            chosen = _chosen(run, setting)
            rows, traced = run.stored(chosen), run.store.traced().get(setting, set())
            some = rows[start : start + ROWS]
            listed = [_row(row, run.classes) | {"traced": row.problem in traced} for row in some]
            return {"total": len(rows), "start": start, "rows": listed}

    def row(self, number: int, setting: int, problem: int) -> dict[str, Any]:
        """One row with its image, and its trace where there is one."""
        with self._opened(number) as run:
            chosen = _chosen(run, setting)
            row = next((row for row in run.stored(chosen) if row.problem == problem), None)
            if row is None:
                raise InputError("there is no such row any more: load the page again")
            trace = run.trace(chosen, row) if row.queries else None
            return {
                **_row(row, run.classes),
                "title": shown(chosen.title),
                "limit": chosen.queries,
                "names": [shown(name) for name in run.classes],
                "shape": list(run.shape),
                "label": row.label,
                "target": row.target,
                **_pixels(run, row, trace),
            }

    def _found(self) -> Iterator[Path]:
        """Run folders below ``runs``, the newest first; links are not followed."""
        found: list[tuple[float, Path]] = []
        top = self._below.resolve()
        for place, inner, _ in os.walk(top):
            folder = Path(place)
            if _holds_run(folder):
                found.append((_changed(folder), folder))
                inner.clear()
            if len(folder.relative_to(top).parts) >= _DEPTH or len(found) >= _MOST:
                inner.clear()
        for _, folder in sorted(found, reverse=True)[:_MOST]:
            yield folder

    def _may_open(self, folder: Path) -> bool:
        return folder in self._named or folder.is_relative_to(self._below.resolve())

    def _number(self, folder: Path) -> int:
        with self._turn:
            if folder not in self._known:
                self._known.append(folder)
            return self._known.index(folder)

    def _folder(self, number: int) -> Path:
        with self._turn:
            if number >= len(self._known):
                raise InputError(f"there is no run of number {number}: load the page again")
            folder = self._known[number]
        if folder.resolve() != folder:  # a link has taken its place
            raise DataError(f"{folder} leads elsewhere now: name it again")
        return folder

    def _name(self, folder: Path) -> str:
        """As short as it is clear."""
        is_near = folder.is_relative_to(self._here)
        return shown(folder.relative_to(self._here) if is_near else folder)

    @contextmanager
    def _opened(self, number: int) -> Iterator[Run]:
        run = Run.open(self._folder(number))
        try:
            yield run
        finally:
            run.store.close()


def _holds_run(folder: Path) -> bool:
    """Whether a run has at least begun in a folder."""
    return (folder / FILE).is_file() or (folder / LOCK).is_file()


def _changed(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _chosen(run: Run, number: int) -> Setting:
    for setting in run.settings:
        if setting.number == number:
            return setting
    raise InputError(f"the run has no setting {number}: load the page again")


def _setting(found: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of a setting."""
    names = ("number", "goal", "pixels", "queries", "stored", "problems", "counts", "asr")
    return {"name": shown(found["name"]), **{name: found[name] for name in names}}


def _row(row: Row, classes: Sequence[str]) -> dict[str, Any]:
    """What the page shows of a row; problems are numbers that scripts cannot hold."""
    labels = {"label": row.label, "target": row.target, "seen": row.final_label}
    return {
        "problem": str(row.problem),
        "image": shown(row.image),
        **{
            f"{name}_name": None if label is None else shown(class_name(classes, label))
            for name, label in labels.items()
        },
        "status": row.status,
        "queries": row.queries,
        "pixels": row.pixels,
        "error": shortened(shown(row.error), _LONG),
    }


def _pixels(run: Run, row: Row, trace: Trace | None) -> dict[str, Any]:
    """Original, and what was changed; without the original, only that."""
    positions, levels = edits_of(row, run.shape)
    edits = [[at, *mine] for at, mine in zip(positions.tolist(), levels.tolist(), strict=True)]
    shown_as = {"trace": None if trace is None else trace.as_dict(), "edits": edits}
    if run.shape[1] * run.shape[2] > LARGEST:
        return shown_as | {"original": None, "remark": "the image is too large for this page"}
    try:
        original = run.originals.take([row.image])[0]
    except (BrusleError, OSError) as error:
        remark = f"without the original image: {shortened(shown(error), _LONG)}"
        return shown_as | {"original": None, "remark": remark}
    return shown_as | {"original": raw_levels(original), "remark": ""}
