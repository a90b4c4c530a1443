"""The answers of a journal, by image and draw; labels are stored once, and referred to."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brusle.database import (
    CHANGED,
    Damaged,
    checksum,
    require_order,
    require_unchanged,
    with_checksum,
)
from brusle.journal.file import JournalFile, Ticket
from brusle.replies import Reply
from brusle.text import storable

SCHEMA = """
CREATE TABLE labels (
    id INTEGER PRIMARY KEY, label TEXT NOT NULL, title TEXT NOT NULL, checksum TEXT NOT NULL
);
CREATE TABLE answers (
    image BLOB NOT NULL, draw INTEGER NOT NULL, labels BLOB, type TEXT NOT NULL,
    scores BLOB NOT NULL, error TEXT NOT NULL, version TEXT NOT NULL, checksum TEXT NOT NULL,
    PRIMARY KEY (image, draw)
) WITHOUT ROWID;
"""
_TYPES = ("<f4", "<f8")  # of scores, in the order of bytes of the file
_NUMBERS = "<u4"  # of labels
_ADD_LABELS = "INSERT OR IGNORE INTO labels VALUES (?, ?, ?, ?)"
_ADD = "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_FIND = "SELECT * FROM answers WHERE image = ? AND draw = ?"


class Key(NamedTuple):
    """What an answer is known by.

    Attributes:
        image: hash of its pixels.
        draw: which of the answers to the same image it is.
    """

    image: bytes
    draw: int = 0


def image_hashes(images: Tensor) -> list[bytes]:
    """A hash of shape and pixels of each of ``(n, c, h, w)`` images."""
    pixels = images.detach().to("cpu", torch.float32).contiguous().numpy().astype("<f4", copy=False)
    shape = str(tuple(images.shape[1:])).encode()
    return [hashlib.sha256(shape + image.tobytes()).digest() for image in pixels]


class ReplyWriter:
    """Replies as columns of a table: labels, type, scores, error, version.

    Labels get numbers in the order in which they are first written. A label is in the file before
    anything refers to it, or with it.
    """

    def __init__(self, file: JournalFile) -> None:
        self._file, self._lock = file, threading.Lock()
        self._labels: list[tuple[str, str]] = []
        self._new: list[tuple[Any, ...]] = []
        with file.explained():
            for row in file.scan("SELECT * FROM labels ORDER BY id"):
                self._labels.append(_label(row, len(self._labels)))
        self._numbers = {label: number for number, label in enumerate(self._labels)}

    def hand_in(self, statement: str, rows: Iterable[tuple[tuple[Any, ...], Reply]]) -> Ticket:
        """Have replies written, each behind other columns of its row."""
        with self._lock:
            records = [with_checksum(*front, *self._packed(reply)) for front, reply in rows]
            ticket = self._file.hand_in([(_ADD_LABELS, self._new), (statement, records)])
            self._new = []
        return ticket

    def _packed(self, reply: Reply) -> tuple[Any, ...]:
        labels = None
        if reply.labels is not None:
            titles = reply.titles or ("",) * len(reply.labels)
            pairs = zip(reply.labels, titles, strict=True)
            labels = np.array(list(starmap(self._number, pairs)), _NUMBERS).tobytes()
        kind = _type_of(reply)
        return labels, kind, reply.scores.astype(kind).tobytes(), reply.error, reply.version

    def _number(self, label: str, title: str) -> int:
        number = self._numbers.setdefault((label, title), len(self._labels))
        if number == len(self._labels):
            self._labels.append((label, title))
            self._new.append(with_checksum(number, label, title))
        return number

    def reply(self, columns: Sequence[Any]) -> Reply:
        """What such columns say."""
        labels, kind, scores, error, version = columns
        if kind not in _TYPES or not isinstance(error, str) or not isinstance(version, str):
            raise Damaged("an answer has something else where it should have text")
        try:
            values = np.frombuffer(scores, kind)
            named = None if labels is None else np.frombuffer(labels, _NUMBERS).tolist()
            pairs = None if named is None else [self._labels[number] for number in named]
        except (ValueError, TypeError, IndexError) as cause:
            raise Damaged("an answer cannot be read") from cause
        if pairs is not None and len(pairs) != len(values):
            raise Damaged("an answer has another number of labels than of scores")
        native = values.astype(values.dtype.newbyteorder("="))
        if pairs is None:
            return Reply(native, error=error, version=version, replayed=True)
        said = tuple(label for label, _ in pairs)
        titles = tuple(title for _, title in pairs)
        return Reply(native, said, titles if any(titles) else None, error, 0, True, version)


class Answers:
    """All answers of a journal. Opening looks at each: one of another key would be asked again."""

    def __init__(self, file: JournalFile, writer: ReplyWriter) -> None:
        self._file, self._writer = file, writer
        with file.explained():
            require_order(map(_key, file.scan("SELECT * FROM answers")))

    def find(self, keys: Iterable[Key]) -> dict[Key, Reply]:
        """Those of the answers that there are."""
        found = (row for key in keys for row in self._file.select(_FIND, *key))
        with self._file.explained():
            return {_key(row): self._writer.reply(row[2:-1]) for row in found}

    def note(self, replies: Mapping[Key, Reply], wait: bool) -> dict[Key, Reply]:
        """Write answers, and return them as they will be found, but for what they have cost."""
        stored = {key: as_stored(reply) for key, reply in replies.items()}
        ticket = self._writer.hand_in(_ADD, stored.items())
        if wait:
            self._file.wait_for(ticket)
        return stored


def _key(row: Sequence[Any]) -> Key:
    """Of a row of the table that is as it was stored."""
    *values, stated = row
    if checksum(*values) != stated:
        raise Damaged(f"an answer: {CHANGED}")
    image, draw, *_ = values
    if not isinstance(image, bytes) or not isinstance(draw, int):
        raise Damaged("an answer is not known by hash and number")
    return Key(image, draw)


def _label(row: Sequence[Any], expected: int) -> tuple[str, str]:
    require_unchanged([row], "label")
    number, label, title, _ = row
    if number != expected or not isinstance(label, str) or not isinstance(title, str):
        raise Damaged(f"label {expected} cannot be read")
    return label, title


def as_stored(reply: Reply) -> Reply:
    """A reply as a file can hold it: text is Unicode, and numbers are no narrower than float32."""
    return replace(
        reply,
        scores=reply.scores.astype(_type_of(reply)[1:]),
        labels=None if reply.labels is None else tuple(map(storable, reply.labels)),
        titles=None if reply.titles is None else tuple(map(storable, reply.titles)),
        error=storable(reply.error),
        version=storable(reply.version),
    )


def _type_of(reply: Reply) -> str:
    return _TYPES[reply.scores.dtype not in (np.float16, np.float32)]
