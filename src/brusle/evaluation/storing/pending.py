"""Answers to attacks that are not finished yet, so that an interruption costs a second of them.

Attacks are deterministic: the same problem, setting and draw asks for the same image. So it is
enough to keep what the victim said. After a kill the same command runs the attacks again on these
answers, which takes no time of the victim's, and goes on with the next query. A victim that does
not answer to the clean image as it did then is another one: the attack on it begins anew.

The file lies beside the results and is gone when nothing is pending. It is a help and no result:
whatever is wrong with it, the attacks begin anew.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brusle import rng
from brusle.database import connect, layout, layout_of
from brusle.errors import DataError
from brusle.scores import ABSENT

FILE = "pending.sqlite"
MOST_BYTES = 256 << 20  # of answers; beyond that, no more are kept
SOON, EVERY = 0.05, 1.0  # seconds to the first writing, twice as many to the next, at most so many
_TYPES = ("<f4", "<f8")  # of scores, in the order of bytes of the file
_SCHEMA = """
CREATE TABLE answers (
    setting INTEGER NOT NULL, problem INTEGER NOT NULL,
    draws BLOB NOT NULL, type TEXT NOT NULL, scores BLOB NOT NULL
);
CREATE INDEX whose ON answers (setting, problem);
"""
_MINE = "setting = ? AND problem = ?"
_SELECT = f"SELECT draws, type, scores FROM answers WHERE {_MINE} ORDER BY rowid"
_DELETE = f"DELETE FROM answers WHERE {_MINE}"


class Pending:
    """The answers of one run folder, whose lock the caller holds, and which holds no links.

    Args:
        folder: the run folder.
        about: whatever answers depend on beside the setting: victim, weights, version.
    """

    def __init__(self, folder: Path, about: str) -> None:
        self._path, self._about = folder / FILE, about
        self._size, self._pause, self._due = 0.0, SOON, time.monotonic()
        self._now: Recollection | None = None
        self._over: set[tuple[int, int]] = set()
        self._connection = self._open() or self._anew()

    def counts(self, setting: str) -> Counter[int]:
        """How many answers there are to each problem of a setting."""
        found = self._select(
            "SELECT problem, SUM(LENGTH(draws)) FROM answers WHERE setting = ? GROUP BY problem",
            self._number(setting),
        )
        return Counter({problem: size // 4 for problem, size in found})

    def of(self, setting: str, ids: Iterable[int], randomised: bool) -> Recollection:
        """The answers to some problems of a setting, for an `Oracle`; one is in use at a time.

        Args:
            setting: tells it from all others.
            ids: of the problems, in the order in which the oracle knows them.
            randomised: the victim may answer the same image in another way.
        """
        self.write()
        number, ids = self._number(setting), list(ids)
        known = {row: self._read(number, problem) for row, problem in enumerate(ids)}
        known = {row: answers for row, answers in known.items() if answers}
        self._now = Recollection(self, number, ids, known, randomised)
        return self._now

    def forget(self, setting: str, problems: Iterable[int]) -> None:
        """These problems are finished."""
        number = self._number(setting)
        self._over |= {(number, problem) for problem in problems}

    def drop(self, setting: int, problem: int) -> None:
        """The answers to this problem until now are of no use."""
        self._change(_DELETE, [(setting, problem)])

    def write_if_due(self) -> None:
        """Write what was noted, every now and then."""
        if time.monotonic() >= self._due:
            self.write()

    def write(self) -> None:
        """Write what was noted, and remove what is over."""
        records = [] if self._now is None else self._now.taken(self._over)
        if self._size > MOST_BYTES:  # as it was with what is over
            self._size = self._total()
        if self._size <= MOST_BYTES:
            self._change("INSERT INTO answers VALUES (?, ?, ?, ?, ?)", records)
            self._size += sum(len(scores) for *_, scores in records)
        self._change(_DELETE, list(self._over))
        self._over.clear()
        self._due = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, EVERY)

    def close(self) -> None:
        """Write the rest; if nothing is pending, remove the file."""
        self.write()
        over = not self._total()
        if self._connection is not None:
            self._connection.close()
        if over:
            _remove(self._path)

    def _number(self, setting: str) -> int:
        return rng.content_id(self._about.encode(), setting.encode())

    def _read(self, setting: int, problem: int) -> dict[int, Tensor]:
        """Scores by draw; what cannot be read is not there."""
        known: dict[int, Tensor] = {}
        for record in self._select(_SELECT, setting, problem):
            known |= _unpacked(*record)
        return known

    def _open(self) -> sqlite3.Connection | None:
        """The file, if it is sound."""
        with suppress(sqlite3.Error, DataError):
            connection = connect(str(self._path))
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # a kill does no harm to it
            if not layout(connection):
                connection.executescript(_SCHEMA)
            sound = connection.execute("PRAGMA quick_check").fetchone()[0] == "ok"
            if sound and layout(connection) == layout_of(_SCHEMA):
                return connection
            connection.close()
        return None

    def _anew(self) -> sqlite3.Connection | None:
        """A new file instead of a damaged one; None where there cannot be one."""
        _remove(self._path)
        return self._open()

    def _total(self) -> float:
        ((total,),) = self._select("SELECT TOTAL(LENGTH(scores)) FROM answers") or [(0,)]
        return float(total)

    def _select(self, query: str, *values: int) -> list[tuple[Any, ...]]:
        """What is found; nothing if the file is of no use, which it is from then on."""
        if self._connection is None:
            return []
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error:
            self._connection = None
            return []

    def _change(self, statement: str, records: Sequence[tuple[object, ...]]) -> None:
        """Execute in one transaction; without the file, nothing is kept."""
        if self._connection is None or not records:
            return
        try:
            with self._connection:
                self._connection.executemany(statement, records)
        except sqlite3.Error:
            self._connection = None


class Recollection:
    """What is known of some problems, and what is learned; a `brusle.oracle.Memory`."""

    def __init__(
        self,
        pending: Pending,
        setting: int,
        ids: list[int],
        known: dict[int, dict[int, Tensor]],
        randomised: bool,
    ) -> None:
        self._pending, self._setting, self._ids = pending, setting, ids
        self._known, self._randomised = known, randomised
        self._noted: list[tuple[Tensor, Tensor, Tensor]] = []

    def recall(self, rows: Tensor, draws: Tensor) -> tuple[Tensor, Tensor] | None:
        """As in `brusle.oracle.Memory`. The clean image is asked for in any case."""
        if not self._known:
            return None
        pairs = enumerate(zip(rows.tolist(), draws.tolist(), strict=True))
        found = {
            at: self._known[row].pop(draw)
            for at, (row, draw) in pairs
            if draw and draw in self._known.get(row, ())
        }
        self._known = {row: answers for row, answers in self._known.items() if answers}
        if not found:
            return None
        return torch.tensor(list(found)), torch.stack(list(found.values()))

    def note(self, rows: Tensor, draws: Tensor, scores: Tensor) -> None:
        """As in `brusle.oracle.Memory`."""
        wide = scores.dtype == torch.float64
        scores = scores.detach().cpu().to(torch.float64 if wide else torch.float32)
        if self._known:
            self._compare(rows, draws, scores)
        self._noted.append((rows.clone(), draws, scores.clone()))  # the loop goes on with its own
        self._pending.write_if_due()

    def taken(self, over: set[tuple[int, int]]) -> list[tuple[int, int, bytes, str, bytes]]:
        """What was noted since the last time, of problems that are not over, to be written."""
        if not self._noted:
            return []
        rows, draws, scores = (torch.cat(parts) for parts in zip(*self._noted, strict=True))
        self._noted.clear()
        shares: dict[int, list[int]] = {}
        for at, row in enumerate(rows.tolist()):
            shares.setdefault(row, []).append(at)
        return [
            (self._setting, self._ids[row], *_packed(draws[mine], scores[mine]))
            for row, mine in shares.items()
            if (self._setting, self._ids[row]) not in over
        ]

    def _compare(self, rows: Tensor, draws: Tensor, scores: Tensor) -> None:
        """Forget problems to whose clean image the victim has said something else before."""
        for row, draw, now in zip(rows.tolist(), draws.tolist(), scores, strict=True):
            if draw or row not in self._known:
                continue
            answers = self._known[row]
            before = answers.pop(0, None)
            same = before is not None and (self._randomised or _alike(before, now))
            if not (same and all(len(other) == len(now) for other in answers.values())):
                del self._known[row]
                self._pending.drop(self._setting, self._ids[row])


def _alike(before: Tensor, now: Tensor) -> bool:
    """The same but for what batches of another size make of the last digits."""
    if before.shape != now.shape:
        return False
    scale = float(now.abs().masked_fill(now == ABSENT, 0).max())
    return torch.allclose(before.double(), now.double(), rtol=1e-3, atol=1e-4 * scale)


def _packed(draws: Tensor, scores: Tensor) -> tuple[bytes, str, bytes]:
    kind = _TYPES[scores.dtype == torch.float64]
    numbers = draws.numpy().astype("<u4")
    return numbers.tobytes(), kind, scores.numpy().astype(kind).tobytes()


def _unpacked(draws: Any, kind: Any, scores: Any) -> dict[int, Tensor]:
    """What `_packed` has packed; nothing if it cannot be that."""
    if kind not in _TYPES:
        return {}
    try:
        numbers = np.frombuffer(draws, "<u4").tolist()
        values = np.frombuffer(scores, kind).reshape(len(numbers), -1)
    except (ValueError, TypeError):
        return {}
    if values.shape[1] < 2 or np.isnan(values).any() or np.isposinf(values).any():
        return {}
    native = values.astype(values.dtype.newbyteorder("="))
    return dict(zip(numbers, torch.from_numpy(native), strict=True))


def _remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        with suppress(OSError):
            path.with_name(path.name + ending).unlink()
