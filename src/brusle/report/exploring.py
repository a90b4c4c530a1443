"""What a page needs so that every row of a run can be looked at: facts, pictures and traces.

The facts of rows are small. Pictures and traces are not, and a page must open at once, so there is
room for some: those of the examples first, then those of the first image of each setting, the
second, and so on. Of every row it is said what the page has.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain, zip_longest
from typing import Any, get_args

import numpy as np
from PIL import Image
from torch import Tensor

from brusle.errors import BrusleError
from brusle.evaluation.record import Row, Setting
from brusle.evaluation.storing.rows import edits_of, rebuild
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.traces import pack
from brusle.outcomes import Status
from brusle.report.gallery import png, row_key
from brusle.report.panels.pictures import levels
from brusle.text import shortened, shown

MOST_ROWS = 30_000  # about three megabytes of facts
_LONG = 300  # letters of a reason
_PICTURES, _EDITS = 0.35, 0.25  # of the room, at most; traces have the rest
_STATUSES = get_args(Status)


class Has(IntEnum):
    """Whether a page has the picture, or the trace, of a row."""

    NONE = 0  # there is none
    HERE = 1
    LEFT_OUT = 2  # for want of room
    UNREADABLE = 3  # the original image is not there, or another
    DAMAGED = 4  # what is stored cannot be right


@dataclass(frozen=True)
class Exploration:
    """What can be explored.

    Attributes:
        facts: of all rows, as columns; names are text that can be shown.
        pictures: originals as PNG in base64, by the number of the image.
        edits: changed pixels as they are stored, in base64, by the number of the row.
        traces: packed traces in base64, by the number of the row.
    """

    facts: dict[str, Any]
    pictures: dict[int, str]
    edits: dict[int, str]
    traces: dict[int, str]


@dataclass
class _Room:
    """For letters of a page; once something has not found room, nothing does."""

    letters: float
    taken: int = 0
    full: bool = False

    def holds(self, text: str) -> bool:
        self.full = self.full or self.taken + len(text) > self.letters
        self.taken += 0 if self.full else len(text)
        return not self.full


def explore(run: Run, first: Collection[str], room: float) -> Exploration:
    """Read what a page shows of the rows of a run.

    Args:
        run: the run.
        first: keys of rows (`row_key`) that have pictures and traces before all others.
        room: letters that pictures, edits and traces may take.
    """
    stored = [(setting, run.stored(setting)) for setting in run.settings]
    each = max(1, MOST_ROWS // len(stored))
    kept = [(setting, row) for setting, rows in stored for row in rows[:each]]
    found = _Rows(run, kept, _order(kept, first))
    found.read_pictures(_Room(_PICTURES * room))
    found.read_edits(_Room(_EDITS * room))
    taken = sum(map(len, chain(found.pictures.values(), found.edits.values())))
    found.read_traces(_Room(room - taken))
    left_out = sum(len(rows) for _, rows in stored) - len(kept)
    return Exploration(
        found.facts() | {"left": left_out}, found.pictures, found.edits, found.traces
    )


def _order(kept: Sequence[tuple[Setting, Row]], first: Collection[str]) -> list[int]:
    """Numbers of rows: those that come first, then the settings in turn."""
    by_setting: dict[int, list[int]] = {}
    for at, (setting, _) in enumerate(kept):
        by_setting.setdefault(setting.number, []).append(at)
    turns = chain.from_iterable(zip_longest(*by_setting.values()))
    keys = [row_key(setting, row) for setting, row in kept]
    return sorted((at for at in turns if at is not None), key=lambda at: keys[at] not in first)


@dataclass
class _Rows:
    """Rows, and what was read of them so far."""

    run: Run
    kept: Sequence[tuple[Setting, Row]]
    order: Sequence[int]
    pictures: dict[int, str] = field(default_factory=dict)
    edits: dict[int, str] = field(default_factory=dict)
    traces: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = dict.fromkeys(row.image for _, row in self.kept)
        self.images = {name: at for at, name in enumerate(names)}
        self.has_picture = [Has.LEFT_OUT] * len(self.kept)
        self.has_trace = [Has.NONE] * len(self.kept)
        self._originals: dict[str, Tensor] = {}

    def read_pictures(self, room: _Room) -> None:
        """Originals, each once, as long as there is room."""
        tried: dict[str, Has] = {}
        for at in self.order:
            name = self.kept[at][1].image
            if name not in tried:
                tried[name] = Has.LEFT_OUT if room.full else self._read_picture(name, room)
            self.has_picture[at] = tried[name]

    def _read_picture(self, name: str, room: _Room) -> Has:
        try:
            original = self.run.originals.take([name])[0]
        except (BrusleError, OSError):
            return Has.UNREADABLE
        picture = png(Image.fromarray(levels(original)))
        if not room.holds(picture):
            return Has.LEFT_OUT
        self.pictures[self.images[name]] = picture
        self._originals[name] = original
        return Has.HERE

    def read_edits(self, room: _Room) -> None:
        """Changed pixels of the rows whose original is there."""
        for at in self.order:
            row = self.kept[at][1]
            if self.has_picture[at] is not Has.HERE:
                continue
            try:
                rebuild(row, self._originals[row.image])
            except BrusleError:
                self.has_picture[at] = Has.DAMAGED
                continue
            text = base64.b64encode(row.edits).decode()
            if room.holds(text):
                self.edits[at] = text
            else:
                self.has_picture[at] = Has.LEFT_OUT

    def read_traces(self, room: _Room) -> None:
        """Traces, as long as there is room."""
        traced = self.run.store.traced()
        for at in self.order:
            setting, row = self.kept[at]
            if row.problem in traced.get(setting.number, ()):
                self.has_trace[at] = Has.LEFT_OUT if room.full else self._read_trace(at, room)

    def _read_trace(self, at: int, room: _Room) -> Has:
        setting, row = self.kept[at]
        try:
            trace = self.run.trace(setting, row)
            positions, colours = edits_of(row, self.run.shape)
        except BrusleError:
            return Has.DAMAGED
        assert trace is not None
        last = trace.improvements[-1]
        if not (np.array_equal(last.positions, positions) and np.array_equal(last.levels, colours)):
            return Has.DAMAGED  # it does not lead to the image that was returned
        text = base64.b64encode(pack(trace)).decode()
        if not room.holds(text):
            return Has.LEFT_OUT
        self.traces[at] = text
        return Has.HERE

    def facts(self) -> dict[str, Any]:
        """Columns of all rows, and what their numbers stand for."""
        rows = [row for _, row in self.kept]
        settings = {s.number: at for at, s in enumerate(self.run.settings)}
        reasons = dict.fromkeys(["", *(row.error for row in rows)])
        errors = {text: at for at, text in enumerate(reasons)}
        return {
            "shape": list(self.run.shape),
            "settings": _settings(self.run.settings),
            "names": [shown(name) for name in self.run.classes],
            "images": [shown(name) for name in self.images],
            "errors": [shown(shortened(text, _LONG)) for text in errors],
            "statuses": list(_STATUSES),
            "randomised": self.run.randomised,
            "rows": {
                "key": [row_key(setting, row) for setting, row in self.kept],
                "setting": [settings[setting.number] for setting, _ in self.kept],
                "image": [self.images[row.image] for row in rows],
                "label": [row.label for row in rows],
                "target": [row.target for row in rows],
                "before": [row.clean_label for row in rows],
                "after": [row.final_label for row in rows],
                "status": [_STATUSES.index(row.status) for row in rows],
                "stable": [int(row.stable) for row in rows],
                "queries": [row.queries for row in rows],
                "pixels": [row.pixels for row in rows],
                "error": [errors[row.error] for row in rows],
                "picture": [int(has) for has in self.has_picture],
                "trace": [int(has) for has in self.has_trace],
            },
        }


def _settings(settings: Sequence[Setting]) -> list[dict[str, Any]]:
    """What is told of settings; their titles name the query limit where there are several."""
    several = len({setting.queries for setting in settings}) > 1
    return [
        {
            "number": setting.number,
            "attack": shown(setting.attack),
            "title": shown(setting.title + several * f", {setting.queries} queries"),
            "goal": setting.goal,
            "pixels": setting.pixels,
            "queries": setting.queries,
        }
        for setting in settings
    ]
