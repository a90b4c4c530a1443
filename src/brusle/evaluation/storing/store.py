"""The results of an evaluation in one SQLite file: durable, and readable while it is written.

There is one row for each attack on one problem (image, label, target), written once the attack on
it is finished and verified, and only then shown as done. A process that is killed loses what was
in flight and nothing else. Readers do not disturb the writer (write-ahead log), and there is one
writer at a time (a lock that the system releases with the process).
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, get_args, get_type_hints

from pydantic import ValidationError
from pydantic_core import from_json

from brusle.database import (
    CHANGED,
    Damaged,
    checksum,
    connect,
    damage,
    explained,
    is_frozen,
    layout,
    private_copy,
    require_text,
    require_unchanged,
    stated_format,
    with_checksum,
)
from brusle.errors import DataError
from brusle.evaluation.record import FORMAT, About, Row, Setting
from brusle.evaluation.storing import schema
from brusle.evaluation.storing.migrations import is_old, migrate, require_old
from brusle.files import require_plain
from brusle.locking import LOCK, identity, is_written, lock_folder, require_in_place
from brusle.outcomes import FAULTY, Status
from brusle.trouble import tells_of_trouble

FILE = "results.sqlite"


@dataclass(frozen=True)
class Retries:
    """How many stored rows are run again.

    Attributes:
        same_command: for the victim's trouble, by the command that made them.
        retry_errors: for other errors, or not verified, by ``--retry-errors``.
    """

    same_command: int
    retry_errors: int


@dataclass(frozen=True)
class ExaminedRow:
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
        lock = lock_folder(folder)
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
            store._read_as_new()
            store._require_sound()
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

    def about(self) -> About | None:
        """What the store says about its run; None before that has begun."""
        with self._guard():
            return _about(self._connection)

    def write_about(self, about: About) -> None:
        """Say this about the run, instead of what was said before."""
        facts = about.model_dump(mode="json").items()
        with self._guard():
            self._connection.executemany(
                "INSERT OR REPLACE INTO about VALUES (?, ?, ?)",
                [with_checksum(name, json.dumps(value)) for name, value in facts],
            )

    def amend(self, **news: Any) -> None:
        """Say these facts about the run, and leave the others as they are.

        A fact may be given as a function of what was said before. Several threads may do so.
        """
        with self._turn:
            about = self.about()
            if about is not None:
                changed = {k: v(getattr(about, k)) if callable(v) else v for k, v in news.items()}
                self.write_about(about.model_copy(update=changed))

    def add_images(self, images: Mapping[str, tuple[int, str]]) -> None:
        """Write label and hash of images, by name; they must not contradict what is stored."""
        known = self.images()
        for name, facts in images.items():
            if known.get(name, facts) != facts:
                raise DataError(
                    f"the run folder has results of another image {name} (its pixels or label "
                    f"differ): choose another --out"
                )
        items = [with_checksum(str(name), *facts) for name, facts in images.items()]
        with self._guard():
            self._connection.executemany("INSERT OR IGNORE INTO images VALUES (?, ?, ?, ?)", items)

    def images(self) -> dict[str, tuple[int, str]]:
        """Label and hash of all images, by name."""
        with self._guard():
            found = self._connection.execute("SELECT * FROM images").fetchall()
            require_unchanged(found, "image")
            if not all(isinstance(label, int) for _, label, *_ in found):
                raise Damaged("the label of an image is no number")
        return {name: (label, sha256) for name, label, sha256, _ in found}

    def extend_sequence(self, images: Sequence[str]) -> None:
        """Write down that these images are attacked next, until something is decided."""
        with self._guard():
            (place,) = self._connection.execute("SELECT count(*) FROM sequence").fetchone()
            self._connection.executemany(
                "INSERT INTO sequence VALUES (?, ?, ?)",
                [with_checksum(at, name) for at, name in enumerate(images, place)],
            )

    def sequence(self) -> list[str]:
        """The images of a run that stops when something is decided, in turn; empty of others."""
        with self._guard():
            found = self._connection.execute("SELECT * FROM sequence ORDER BY place").fetchall()
            require_unchanged(found, "place of the sequence")
            if [place for place, *_ in found] != list(range(len(found))):
                raise Damaged("the sequence of images has gaps")
            known = self.images()
            if missing := [name for _, name, _ in found if name not in known]:
                raise Damaged(f"image {missing[0]!r} of its sequence is not there")
        return [name for _, name, _ in found]

    def add_setting(self, setting: Setting) -> Setting:
        """The setting with its number, a new one if there is none of its key."""
        text = setting.model_dump_json(exclude={"number"})
        with self._guard():
            self._connection.execute(
                "INSERT INTO settings (key, description, checksum) VALUES (?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET (description, checksum) = "
                "(excluded.description, excluded.checksum)",
                with_checksum(setting.key, text),
            )
            found = self._connection.execute(
                "SELECT id FROM settings WHERE key = ?", (setting.key,)
            )
            return setting.model_copy(update={"number": int(found.fetchone()[0])})

    def settings(self) -> list[Setting]:
        """All settings, in the order in which they were first asked for."""
        return list(self.settings_by_key().values())

    def settings_by_key(self) -> dict[str, Setting]:
        """The same by the keys that they were stored under."""
        with self._guard():
            return _settings(self._connection)

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
            for setting in self.settings()
            for row in self.rows(setting.number)
            if row.status in FAULTY
        ]
        troubles = sum(tells_of_trouble(row.error) for row in faulty)
        return Retries(troubles, len(faulty) - troubles)

    def add_rows(
        self, setting: int, rows: Sequence[Row], traces: Mapping[int, bytes] | None = None
    ) -> None:
        """Write rows in one transaction; when this returns, they are on the disk.

        A row takes the place of an error and of what was not verified, and of nothing else.

        Args:
            setting: number of their setting.
            rows: the rows.
            traces: packed traces by problem, of those that have one.
        """
        marks = ", ".join("?" * (len(_KINDS) + 2))
        values = [with_checksum(setting, *_values(row)) for row in rows]
        old = [(setting, row.problem, *FAULTY) for row in rows]
        where = "setting = ? AND problem = ? AND status IN (?, ?)"
        with self._guard():
            self._connection.executemany(f"DELETE FROM rows WHERE {where}", old)
            self._connection.executemany(f"INSERT INTO rows VALUES ({marks})", values)
            self._connection.executemany(
                "INSERT OR REPLACE INTO traces VALUES (?, ?, ?, ?)",
                [with_checksum(setting, *trace) for trace in (traces or {}).items()],
            )

    def trace(self, setting: int, problem: int) -> bytes | None:
        """The packed trace of a row; None if none was kept. Raises if it was changed since."""
        with self._guard():
            found = self._connection.execute(
                "SELECT * FROM traces WHERE setting = ? AND problem = ?", (setting, problem)
            ).fetchone()
        if found is None:
            return None
        *values, stated = found
        if checksum(*values) != stated or not isinstance(values[2], bytes):
            raise damage(self._name, f"the trace of problem {problem}: {CHANGED}")
        return values[2]

    def traced(self) -> dict[int, set[int]]:
        """Ids of the problems of each setting that have a trace."""
        with self._guard():
            found = self._connection.execute("SELECT setting, problem FROM traces").fetchall()
        problems: dict[int, set[int]] = {}
        for setting, problem in found:
            problems.setdefault(setting, set()).add(problem)
        return problems

    def rows(self, setting: int) -> list[Row]:
        """The finished attacks of a setting; raises if one of them is not as it was stored."""
        rows = []
        for found in self.examine(setting):
            if found.row is None or found.fault:
                raise damage(
                    self._name,
                    f"image {found.image!r} of setting {setting}: {found.fault} (`brusle verify` "
                    f"lists all such rows)",
                )
            rows.append(found.row)
        return rows

    def examine(self, setting: int) -> list[ExaminedRow]:
        """The finished attacks of a setting, and what is wrong with how they are stored."""
        with self._guard():
            found = self._connection.execute(
                "SELECT * FROM rows WHERE setting = ?", (setting,)
            ).fetchall()
        return [_examined(columns) for columns in found]

    def counts(self) -> dict[int, dict[str, int]]:
        """How many rows of each status every setting has."""
        counts: dict[int, dict[str, int]] = {}
        for setting in self.settings():
            for row in self.rows(setting.number):
                mine = counts.setdefault(setting.number, {})
                mine[row.status] = mine.get(row.status, 0) + 1
        return counts

    def _prepare(self) -> None:
        with self._guard():
            if not layout(self._connection):
                schema.create(self._connection)
            elif is_old(self._connection):
                _migrate(self._connection)
        self._require_sound()

    def _read_as_new(self) -> None:
        """Go on with a copy of this version's format, if the file is of an older one."""
        with self._guard():
            if not is_old(self._connection):
                return
            require_old(self._connection)
            old, self._connection = self._connection, private_copy(self._connection)
        old.close()
        with self._guard():
            _migrate(self._connection)

    def _has_begun(self) -> bool:
        """Whether the writer has made its tables, which it does at once."""
        with self._guard():
            return bool(layout(self._connection))

    def _require_sound(self) -> None:
        """Raise unless this is a whole store of this version, and nothing else."""
        with self._guard():
            found = stated_format(self._connection)
        if found != FORMAT:
            raise DataError(
                f"{self._name} is of format {found}, not {FORMAT}: take the version of brusle that "
                f"wrote it"
            )
        with self._guard():
            schema.require_sound(self._connection)
        for look in (self.about, self.settings, self.images, self.sequence):
            look()  # raises if something is not as it was stored

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
        require_in_place(self._files)
        with explained(self._name), self._turn, self._connection:
            yield


class JustStarting(DataError):  # noqa: N818 - it is no error of anybody
    """A run has taken the folder, and has not stored anything yet."""


def _no_run(folder: str | Path) -> DataError:
    if is_written(folder):
        return JustStarting(f"a run is just starting in {folder}: look again in a moment")
    return DataError(f"{folder} holds no run: give the folder of an evaluation (--out)")


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring a store to this version's format; raises if what it holds cannot be read then."""
    migrate(connection)
    _about(connection)
    _settings(connection)


def _about(connection: sqlite3.Connection) -> About | None:
    """What the JSON of each fact says; raises if that is damaged or of another type."""
    found = connection.execute("SELECT * FROM about").fetchall()
    require_unchanged(found, "fact")
    require_text(found)
    facts = {name: text for name, text, _ in found}
    if facts.keys() <= {"format"}:
        return None
    for name, text in facts.items():
        try:
            from_json(text)
        except ValueError as error:
            raise Damaged(f"what it says about {name!r} cannot be read ({error})") from error
    whole = ", ".join(f"{json.dumps(name)}: {text}" for name, text in facts.items())
    try:
        about = About.model_validate_json(f"{{{whole}}}", strict=True)
    except ValidationError as error:
        fact = error.errors()[0]["loc"][0]
        raise Damaged(f"what it says about {fact!r} cannot be read ({_reason(error)})") from error
    if missing := sorted(About.model_fields.keys() - facts.keys()):
        raise Damaged(f"it says nothing about {missing[0]!r}")
    return about


def _settings(connection: sqlite3.Connection) -> dict[str, Setting]:
    """By their keys; raises if one is damaged."""
    found = connection.execute("SELECT * FROM settings ORDER BY id").fetchall()
    described = [columns for _, *columns in found]
    require_unchanged(described, "setting")
    require_text(described)
    return {key: _setting(number, text) for number, key, text, _ in found}


def _setting(number: int, text: str) -> Setting:
    try:
        setting = Setting.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise Damaged(
            f"the description of setting {number} cannot be read ({_reason(error)})"
        ) from error
    if "number" in setting.model_fields_set:
        raise Damaged(f"setting {number} has a number in its description")
    if missing := sorted(Setting.model_fields.keys() - setting.model_fields_set - {"number"}):
        raise Damaged(f"the description of setting {number} says nothing about {missing[0]!r}")
    return setting.model_copy(update={"number": number})


def _reason(error: ValidationError) -> str:
    """The first thing that pydantic found, in a few words."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def _values(row: Row) -> Iterator[Any]:
    """What SQLite holds of a row: it knows neither truth values nor NaN nor a zero below zero."""
    for (name, kind), value in zip(_KINDS.items(), astuple(row), strict=True):
        missing = value is None or (name == "loss" and math.isnan(value))
        stored = int if kind is bool else kind
        yield None if missing else stored(value + 0.0 if kind is float else value)


def _examined(columns: Sequence[Any]) -> ExaminedRow:
    """One row of the table, with its setting in front and its checksum at the end."""
    setting, *values, stated = columns
    named = dict(zip(_KINDS, values, strict=True))
    image = str(named["image"])
    named["stable"] = {0: False, 1: True}.get(named["stable"], named["stable"])
    named["loss"] = math.nan if named["loss"] is None else named["loss"]
    for name, kind in _KINDS.items():
        missing = named[name] is None and name == "target"
        if not missing and not isinstance(named[name], kind):
            return ExaminedRow(image, None, f"its {name} is no {kind.__name__}")
    if named["status"] not in get_args(Status):
        return ExaminedRow(image, None, "its status is none that there is")
    fault = "" if checksum(setting, *values) == stated else CHANGED
    return ExaminedRow(image, Row(**named), fault)


def _kind(hint: Any) -> type:
    """The Python type of a column; what may be missing has two."""
    kind: type = str if hint is Status else (get_args(hint) or (hint,))[0]
    return kind


_KINDS = {name: _kind(hint) for name, hint in get_type_hints(Row).items()}
