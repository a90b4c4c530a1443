"""The results of an evaluation in one SQLite file: durable, and readable while it is written.

There is one row for each attack on one problem (image, label, target), written once the attack on
it is finished and verified, and only then shown as done. A process that is killed loses what was
in flight and nothing else. Readers do not disturb the writer (write-ahead log), and there is one
writer at a time (a lock that the system releases with the process).

Every row of every table carries a checksum of its other columns. It tells damage, and changes by a
hand that did not know of it; it is no signature.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, get_args

import numpy as np
import torch
from pydantic import NonNegativeInt, PositiveInt, TypeAdapter, ValidationError
from torch import Tensor

from brusle.errors import DataError
from brusle.evaluation.storing.about import read_fact, reason
from brusle.evaluation.storing.database import connect, in_words, is_frozen, layout, layout_of
from brusle.evaluation.storing.locking import LOCK, identity, is_written, open_lock, take
from brusle.files import require_plain, slug
from brusle.outcomes import FAULTY, Status
from brusle.results import AttackResult
from brusle.search import Needs
from brusle.text import storable
from brusle.trouble import tells_of_trouble

GoalName = Literal["untargeted", "targeted"]
FILE = "results.sqlite"
_FORMAT = "brusle-results-3"
_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum TEXT NOT NULL);
CREATE TABLE settings (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, description TEXT NOT NULL,
    checksum TEXT NOT NULL
);
CREATE TABLE images (
    name TEXT PRIMARY KEY, label INTEGER NOT NULL, sha256 TEXT NOT NULL, checksum TEXT NOT NULL
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Record:
    """A setting as it is stored: an attack with its budgets, a goal and a seed.

    Attributes:
        number: of the setting in its store.
        attack: name of the attack, with the options that differ from their defaults.
        goal: "untargeted" or "targeted".
        pixels: pixel budget.
        queries: query limit.
        seed: the seed.
        eot: answers that were averaged for every candidate.
        needs: what the attack needs of a victim: labels, scores or gradients.
        problems: how many problems the last plan has that asked for it.
        options: all options of the attack.
    """

    number: int
    attack: str
    goal: GoalName
    pixels: PositiveInt
    queries: PositiveInt
    seed: int
    eot: PositiveInt
    needs: Needs
    problems: NonNegativeInt
    options: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """The attack, and what else is not as usual."""
        return self.attack + self._unusual

    @property
    def minimal(self) -> bool:
        """Whether this is a search for the fewest pixels (`brusle.attacks.Minimal`).

        Its options, and no others, are an attack and the total of queries.
        """
        return self.options.keys() == {"attack", "total"}

    @property
    def fewest(self) -> int | None:
        """Pixel limit of a search for the fewest pixels; None of other attacks."""
        return self.pixels if self.minimal else None

    @property
    def family(self) -> tuple[object, ...]:
        """What is equal in settings that differ in their seed alone."""
        return self.attack, self.goal, self.pixels, self.queries, self.eot, self.minimal

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.attack} {self.goal}, {self.pixels} px{self._unusual}"

    @property
    def _unusual(self) -> str:
        eot = f", eot {self.eot}" if self.eot > 1 else ""
        return eot + (f", seed {self.seed}" if self.seed else "")

    @property
    def slug(self) -> str:
        """For names of folders; different for all settings of a store."""
        return f"{self.number:02d}-{slug(self.title)[:100]}"


@dataclass(frozen=True)
class Row:
    """One finished attack on one problem.

    Attributes:
        problem: id of the problem, a hash of image, label and target.
        image: what the image is called.
        label: true label.
        target: label to reach; None if untargeted.
        status: as in `brusle.results.AttackResult`.
        stable: the success can be repeated.
        queries: queries of the attack.
        clean: ledger; so are ``initial``, ``search``, ``verify``, ``lost`` and ``backward``.
        pixels: changed pixels of the final image.
        clean_label: what the victim says to the clean image; -1 if unknown.
        final_label: what it says to the final image.
        loss: of the final image; NaN if there was no attack.
        scores: of the final image, as float64 bytes.
        edits: changed pixels of the final image, see `pack_edits`.
        found_by: which attack of an ensemble was successful.
        error: reason of the statuses "error" and "unverified".
        seconds: wall-clock time of the attack, beside others in its batch.
    """

    problem: int
    image: str
    label: int
    target: int | None
    status: Status
    stable: bool
    queries: int
    clean: int
    initial: int
    search: int
    verify: int
    lost: int
    backward: int
    pixels: int
    clean_label: int
    final_label: int
    loss: float
    scores: bytes
    edits: bytes
    found_by: str
    error: str
    seconds: float


@dataclass(frozen=True)
class Retries:
    """How many stored rows are run again.

    Attributes:
        same_command: for the victim's trouble, by the command that made them.
        retry_errors: for other errors, or not verified, by ``--retry-errors``.
    """

    same_command: int
    retry_errors: int


_IS_FAULTY = "status IN (?, ?)"
_TYPES = {"int": "INTEGER", "str": "TEXT", "float": "REAL", "bytes": "BLOB", "bool": "INTEGER"}
_PYTHON = {"INTEGER": int, "TEXT": str, "REAL": float, "BLOB": bytes}
_COLUMNS = {f.name: _TYPES.get(str(f.type).split(" ")[0], "TEXT") for f in fields(Row)}
_MAY_BE_NULL = ("target", "loss")
_RECORD, _DESCRIPTION = TypeAdapter(Record), TypeAdapter(dict[str, Any])


def _schema() -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    setting = "setting INTEGER NOT NULL REFERENCES settings"
    end = "checksum TEXT NOT NULL, PRIMARY KEY (setting, problem)"
    return f"{_SCHEMA}CREATE TABLE rows ({setting}, {columns}, {end}) WITHOUT ROWID"


def checksum(*values: Any) -> str:
    """Of what the other columns of a row hold, in their order and as SQLite gives them."""
    return hashlib.sha256(ascii(values).encode()).hexdigest()[:16]


def rows_of(result: AttackResult, which: Sequence[int], names: Sequence[str]) -> list[Row]:
    """Rows of the problems ``which`` of a result, whose images are called ``names``."""
    problems, made = result.problems, []
    for i in which:
        edits = pack_edits(problems.images[i], result.images[i])
        made.append(
            Row(
                problem=int(problems.ids[i]),
                image=names[i],
                label=int(problems.labels[i]),
                target=None if problems.targets is None else int(problems.targets[i]),
                status=result.status[i],
                stable=bool(result.stable[i]),
                queries=int(result.queries[i]),
                **result.ledger.row(i),
                pixels=len(edits) // (4 + problems.shape[0]),
                clean_label=int(result.clean_labels[i]),
                final_label=int(result.labels[i]),
                loss=float(result.losses[i]),
                scores=result.scores[i].double().numpy().tobytes(),
                edits=edits,
                found_by=result.found_by[i],
                error=storable(result.errors.get(i, "")),
                seconds=float(result.times[i]),
            )
        )
    return made


def pack_edits(original: Tensor, image: Tensor) -> bytes:
    """Changed pixels of one ``(c, h, w)`` image: positions, then their 8-bit levels."""
    changed = (original != image).any(0).flatten().nonzero()[:, 0]
    levels = (image.flatten(1)[:, changed] * 255).round().to(torch.uint8).T.contiguous()
    return changed.numpy().astype("<u4").tobytes() + levels.numpy().tobytes()


def unpack_edits(packed: bytes, original: Tensor) -> Tensor:
    """The image that `pack_edits` has packed."""
    c = original.shape[0]
    count = len(packed) // (4 + c)
    index = np.frombuffer(packed[: 4 * count], dtype="<u4").astype(np.int64)
    levels = np.frombuffer(packed[4 * count :], dtype=np.uint8).reshape(count, c).copy()
    image = original.flatten(1).clone()
    image[:, torch.from_numpy(index)] = torch.from_numpy(levels).T.float() / 255
    return image.view_as(original)


@dataclass(frozen=True)
class Found:
    """A row as it was found in the store.

    Attributes:
        image: what its image is called, as far as that can be read.
        row: the row; None if a column holds something of another type.
        fault: what is wrong with how it is stored; empty if nothing is.
    """

    image: str
    row: Row | None
    fault: str = ""


class Store:
    """The results of a run; open it with `write`, `read` or `memory`, and close it.

    Threads may share it; they wait for each other.
    """

    def __init__(self, connection: sqlite3.Connection, name: str, lock: IO[str] | None) -> None:
        self._connection, self._name, self._lock = connection, name, lock
        self._files: dict[Path, tuple[int, int] | None] = {}  # that must stay where they are
        self._turn = threading.RLock()

    @classmethod
    def write(cls, folder: str | Path) -> Store:
        """Open the store of a run folder for writing; make it if there is none."""
        folder = Path(folder)
        require_plain(folder.resolve())  # the folder itself may be one: the user has named it
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = open_lock(folder / LOCK)
        except OSError as error:
            raise DataError(f"cannot write to the run folder {folder}: {error.strerror}") from error
        try:
            take(lock)
        except OSError as error:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise DataError(
                f"another run (process {owner}) writes to {folder}: wait for it, or choose another "
                f"--out"
            ) from error
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        name = str(folder / FILE)
        try:
            connection = connect(name)
        except DataError:
            lock.close()
            raise
        store = cls(connection, name, lock)
        with store._closed_if_useless():
            with store._guard():
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
            store._prepare()
        store._files = {path: identity(path) for path in (folder / FILE, folder / LOCK)}
        return store

    @classmethod
    def read(cls, folder: str | Path) -> Store:
        """Open the store of a run folder for reading, also while a run writes to it."""
        path = Path(folder) / FILE
        if not path.is_file():
            raise _no_run(folder)
        store = cls(connect(str(path), is_frozen(path)), str(path), None)
        with store._closed_if_useless():
            if not store._has_begun():
                raise _no_run(folder)
            store._check_format()
        return store

    @classmethod
    def memory(cls) -> Store:
        """A store that is gone with the process."""
        store = cls(connect(":memory:"), "memory", None)
        store._prepare()
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another run write."""
        self._connection.close()
        self._unlock()

    def release(self) -> None:
        """Let another run write, and go on reading."""
        with self._guard():  # all in one file again, for those who copy it
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._unlock()

    def _unlock(self) -> None:
        self._files = {}
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def about(self) -> dict[str, Any]:
        """What was noted with `note`."""
        with self._guard():
            found = self._connection.execute("SELECT * FROM about").fetchall()
        self._check(found, "fact")
        try:
            return {key: read_fact(key, value) for key, value, _ in found}
        except DataError as error:
            raise self._damage(str(error)) from error

    def note(self, facts: Mapping[str, Any]) -> None:
        """Write facts about the run; a fact of the same name is replaced."""
        items = [_summed(key, json.dumps(value)) for key, value in facts.items()]
        with self._guard():
            self._connection.executemany("INSERT OR REPLACE INTO about VALUES (?, ?, ?)", items)

    def know(self, images: Sequence[tuple[str, int, str]]) -> None:
        """Write name, label and hash of images; they must not contradict what is known."""
        known = self.images()
        for name, *facts in images:
            if known.get(name, tuple(facts)) != tuple(facts):
                raise DataError(
                    f"the run folder has results of another image {name} (its pixels or label "
                    f"differ): choose another --out"
                )
        items = [_summed(str(name), label, sha256) for name, label, sha256 in images]
        with self._guard():
            self._connection.executemany("INSERT OR IGNORE INTO images VALUES (?, ?, ?, ?)", items)

    def images(self) -> dict[str, tuple[int, str]]:
        """Label and hash of all images, by name."""
        with self._guard():
            found = self._connection.execute("SELECT * FROM images").fetchall()
        self._check(found, "image")
        if not all(isinstance(label, int) for _, label, *_ in found):
            raise self._damage("the label of an image is no number")
        return {name: (label, sha256) for name, label, sha256, _ in found}

    def setting(self, key: str, description: Mapping[str, Any]) -> Record:
        """The setting of this key, new if there is none; the description may change."""
        text = json.dumps(description)
        with self._guard():
            self._connection.execute(
                "INSERT INTO settings (key, description, checksum) VALUES (?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET (description, checksum) = "
                "(excluded.description, excluded.checksum)",
                _summed(key, text),
            )
            found = self._connection.execute("SELECT id FROM settings WHERE key = ?", (key,))
            return Record(int(found.fetchone()[0]), **description)

    def settings(self) -> list[Record]:
        """All settings, in the order in which they were first asked for."""
        return list(self.keys().values())

    def keys(self) -> dict[str, Record]:
        """The same by the keys that they were stored under."""
        with self._guard():
            found = self._connection.execute("SELECT * FROM settings ORDER BY id").fetchall()
        self._check([columns for _, *columns in found], "setting")
        return {key: self._record(number, text) for number, key, text, _ in found}

    def _record(self, number: int, text: str) -> Record:
        try:
            described = _DESCRIPTION.validate_json(text)
            strange = described.keys() - {f.name for f in fields(Record)}
            if strange or "number" in described:
                raise self._damage(f"setting {number} has a strange key in its description")
            return _RECORD.validate_json(json.dumps({"number": number} | described), strict=True)
        except ValidationError as error:
            raise self._damage(
                f"the description of setting {number} cannot be read ({reason(error)})"
            ) from error

    def done(self, setting: int, retry_errors: bool = False) -> dict[int, Status]:
        """Ids and statuses of the problems that need not be run again.

        What failed for the victim's trouble is to be run again; with ``retry_errors`` so are all
        other errors and what was not verified.
        """
        return {
            row.problem: row.status
            for row in self.rows(setting)
            if row.status not in FAULTY or not (retry_errors or tells_of_trouble(row.error))
        }

    def retries(self) -> Retries:
        """How many rows will be run again, and by what."""
        faulty = [
            row
            for record in self.settings()
            for row in self.rows(record.number)
            if row.status in FAULTY
        ]
        troubles = sum(tells_of_trouble(row.error) for row in faulty)
        return Retries(troubles, len(faulty) - troubles)

    def add(self, setting: int, rows: Sequence[Row]) -> None:
        """Write rows in one transaction; when this returns, they are on the disk.

        A row takes the place of an error and of what was not verified, and of nothing else.
        """
        marks = ", ".join("?" * (len(_COLUMNS) + 2))
        values = [_summed(setting, *_values(row)) for row in rows]
        old = [(setting, row.problem, *FAULTY) for row in rows]
        where = f"setting = ? AND problem = ? AND {_IS_FAULTY}"
        with self._guard():
            self._connection.executemany(f"DELETE FROM rows WHERE {where}", old)
            self._connection.executemany(f"INSERT INTO rows VALUES ({marks})", values)

    def rows(self, setting: int) -> list[Row]:
        """The finished attacks of a setting; raises if one of them is not as it was stored."""
        rows = []
        for found in self.examine(setting):
            if found.row is None or found.fault:
                raise self._damage(
                    f"image {found.image!r} of setting {setting}: {found.fault} (`brusle verify` "
                    f"lists all such rows)"
                )
            rows.append(found.row)
        return rows

    def examine(self, setting: int) -> list[Found]:
        """The finished attacks of a setting, and what is wrong with how they are stored."""
        with self._guard():
            found = self._connection.execute(
                "SELECT * FROM rows WHERE setting = ?", (setting,)
            ).fetchall()
        return [_examine(columns) for columns in found]

    def counts(self) -> dict[int, dict[str, int]]:
        """How many rows of each status every setting has."""
        counts: dict[int, dict[str, int]] = {}
        for record in self.settings():
            for row in self.rows(record.number):
                mine = counts.setdefault(record.number, {})
                mine[row.status] = mine.get(row.status, 0) + 1
        return counts

    def _prepare(self) -> None:
        with self._guard():
            if not self._layout():
                self._connection.executescript(f"BEGIN; {_schema()}; {_FIRST_FACT}; COMMIT")
        self._check_format()

    def _has_begun(self) -> bool:
        """Whether the writer has made its tables, which it does at once."""
        with self._guard():
            return bool(self._layout())

    def _check_format(self) -> None:
        """Raise unless this is a whole store of this version, and nothing else."""
        with self._guard():
            tables = [name for kind, name, _ in self._layout() if kind == "table"]
            found = None
            if "about" in tables:
                found = self._connection.execute(
                    "SELECT value FROM about WHERE key = 'format'"
                ).fetchone()
        found = found and " ".join(str(found[0])[:40].strip('"').split())
        if found != _FORMAT:
            raise DataError(f"{self._name} is of format {found}, not {_FORMAT}: another version")
        with self._guard():
            if self._layout() != layout_of(_schema()):
                raise sqlite3.DatabaseError("its tables are not those that brusle makes")
            verdict = self._connection.execute("PRAGMA integrity_check").fetchone()[0]
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            if self._connection.execute("PRAGMA foreign_key_check").fetchone():
                raise sqlite3.DatabaseError("it has rows of a setting that it does not have")
            # some versions of SQLite do not look at the order of tables without row ids
            self._check_order("SELECT setting, problem FROM rows")
            self._check_order("SELECT name FROM images")
        for look in (self.about, self.keys, self.images):
            look()  # raises if something is not as it was stored

    def _check_order(self, query: str) -> None:
        """Raise if keys are not found in their order, where SQLite would look for them in vain."""
        keys = self._connection.execute(query).fetchall()
        try:
            ordered = all(one < other for one, other in pairwise(keys))
        except TypeError:  # a text among numbers
            ordered = False
        if not ordered:
            raise sqlite3.DatabaseError("rows are out of order")

    def _layout(self) -> list[tuple[str, str, str]]:
        return layout(self._connection)

    def _check(self, found: Sequence[Sequence[Any]], what: str) -> None:
        """Raise unless all rows, with their checksums at the end, are as they were stored."""
        for name, *values, stated in found:
            if checksum(name, *values) != stated:
                raise self._damage(f"{what} {name!r}: {_CHANGED}")

    def _damage(self, found: str) -> DataError:
        return DataError(
            f"{self._name} is damaged or was changed: {' '.join(found.split())}; "
            f"restore it from a copy, or move it away to begin anew"
        )

    @contextmanager
    def _closed_if_useless(self) -> Iterator[None]:
        """Let go of file and lock if the store turns out not to be one."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """A transaction; SQLite's complaints in our words."""
        self._check_place()
        try:
            with self._turn, self._connection:
                yield
        except sqlite3.Error as error:
            raise DataError(f"{self._name}: {in_words(error)}") from error
        except UnicodeDecodeError as error:  # SQLite's message quotes what is there
            raise self._damage("a name in it is no text") from error

    def _check_place(self) -> None:
        """Raise if somebody has taken the folder away: SQLite would write on, to no file at all."""
        for path, known in self._files.items():
            if identity(path) != known:
                raise DataError(
                    f"{path.parent} was removed or renamed, or its {path.name} was, while this run "
                    f"wrote to it: it stops here. If it was renamed, go on with that --out"
                )


class JustStarting(DataError):  # noqa: N818 - it is no error of anybody
    """A run has taken the folder, and has not stored anything yet."""


def _no_run(folder: str | Path) -> DataError:
    if is_written(folder):
        return JustStarting(f"a run is just starting in {folder}: look again in a moment")
    return DataError(f"{folder} holds no run: give the folder of an evaluation (--out)")


_CHANGED = "its checksum does not fit"
_STATED = json.dumps(_FORMAT)
_FIRST_FACT = f"INSERT INTO about VALUES ('format', '{_STATED}', '{checksum('format', _STATED)}')"


def _summed(*values: Any) -> tuple[Any, ...]:
    return (*values, checksum(*values))


def _values(row: Row) -> Iterator[Any]:
    """What SQLite holds of a row: it knows neither truth values nor NaN nor a zero below zero."""
    for (name, kind), value in zip(_COLUMNS.items(), astuple(row), strict=True):
        missing = value is None or (name == "loss" and math.isnan(value))
        yield None if missing else _PYTHON[kind](value + 0.0 if kind == "REAL" else value)


def _examine(columns: Sequence[Any]) -> Found:
    """One row of the table, with its setting in front and its checksum at the end."""
    setting, *values, stated = columns
    named = dict(zip(_COLUMNS, values, strict=True))
    image = str(named["image"])
    for name, kind in _COLUMNS.items():
        missing = named[name] is None and name in _MAY_BE_NULL
        if not missing and not isinstance(named[name], _PYTHON[kind]):
            return Found(image, None, f"its {name} is no {_PYTHON[kind].__name__}")
    if named["status"] not in get_args(Status) or named["stable"] not in (0, 1):
        return Found(image, None, "its status, or whether it is stable, is none that there is")
    loss = math.nan if named["loss"] is None else named["loss"]
    row = Row(**named | {"stable": bool(named["stable"]), "loss": loss})
    return Found(image, row, "" if checksum(setting, *values) == stated else _CHANGED)
