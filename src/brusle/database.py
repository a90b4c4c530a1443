"""Databases in run folders, which may be anybody's: nothing in them is run, damage is noticed.

Rows carry a checksum of their other columns. It tells damage, and changes by a hand that did not
know of it; it is no signature.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from brusle.errors import DataError

CHANGED = "its checksum does not fit"
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")  # at the end of a journal of several databases


class Damaged(Exception):  # noqa: N818 - `explained` makes an error of it
    """Something in a database that brusle has not written, in a few words."""


def connect(name: str, frozen: bool = False) -> sqlite3.Connection:
    """Open a database, which may be anybody's: nothing in it is run."""
    _refuse_foreign_journal(Path(name))
    try:
        if frozen:
            connection = sqlite3.connect(
                f"file:{quote(name)}?immutable=1", uri=True, check_same_thread=False
            )
        else:
            connection = sqlite3.connect(name, timeout=30, check_same_thread=False)
        _distrust(connection)
    except sqlite3.Error as error:
        raise DataError(f"{name}: {in_words(error)}") from error
    return connection


def private_copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    """A copy that is gone with its connection; what is too large for memory is on the disk."""
    copy = sqlite3.connect("", check_same_thread=False)
    _distrust(copy)
    connection.backup(copy)
    return copy


def _distrust(connection: sqlite3.Connection) -> None:
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")


def layout(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Kind, name and definition of everything in a database, however that is spaced."""
    found = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
    return [(kind, name, " ".join(str(sql or "").split())) for kind, name, sql in found]


def layout_of(schema: str) -> list[tuple[str, str, str]]:
    """What `layout` says of a database that ``schema`` has made."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(schema)
        return layout(connection)
    finally:
        connection.close()


def require_whole(connection: sqlite3.Connection, schema: str) -> None:
    """Raise unless a database has the tables that ``schema`` makes, whole, and nothing else."""
    if layout(connection) != layout_of(schema):
        raise sqlite3.DatabaseError("its tables are not those that brusle makes")
    verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def require_order(keys: Iterable[tuple[Any, ...]]) -> None:
    """Raise if keys are not found in their order, where SQLite would look for them in vain."""
    try:
        ordered = all(one < other for one, other in pairwise(keys))
    except TypeError:  # a text among numbers
        ordered = False
    if not ordered:
        raise sqlite3.DatabaseError("rows are out of order")


def stated_format(connection: sqlite3.Connection) -> str | None:
    """The version of the schema, as the table ``about`` says it; None if there is none."""
    if "about" not in [name for kind, name, _ in layout(connection) if kind == "table"]:
        return None
    found = connection.execute("SELECT value FROM about WHERE key = 'format'").fetchone()
    return found and " ".join(str(found[0])[:40].strip('"').split())


def checksum(*values: Any) -> str:
    """Of what the other columns of a row hold, in their order and as SQLite gives them."""
    return hashlib.sha256(ascii(values).encode()).hexdigest()[:16]


def with_checksum(*values: Any) -> tuple[Any, ...]:
    """A row, ready to be stored."""
    return (*values, checksum(*values))


def require_unchanged(rows: Iterable[Sequence[Any]], what: str) -> None:
    """Raise unless all rows, with their checksums at the end, are as they were stored."""
    for name, *values, stated in rows:
        if checksum(name, *values) != stated:
            raise Damaged(f"{what} {name!r}: {CHANGED}")


def require_text(rows: Iterable[Iterable[Any]]) -> None:
    """Raise unless all columns of all rows are text."""
    if not all(isinstance(value, str) for row in rows for value in row):
        raise Damaged("something in it is no text")


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Complaints about the database called ``name`` in our words."""
    try:
        yield
    except sqlite3.Error as error:
        raise DataError(f"{name}: {in_words(error)}") from error
    except Damaged as error:
        raise damage(name, str(error)) from error
    except UnicodeDecodeError as error:  # SQLite's message quotes what is there
        raise damage(name, "a name in it is no text") from error


def damage(name: str, found: str) -> DataError:
    """What is wrong with the database called ``name``, and what to do."""
    return DataError(
        f"{name} is damaged or was changed: {' '.join(found.split())}; "
        f"restore it from a copy, or move it away to begin anew"
    )


def is_frozen(path: Path) -> bool:
    """Whether nobody can write here, so that SQLite must not want to, either."""
    log = path.with_name(path.name + "-wal")
    return not os.access(path.parent, os.W_OK) and not (log.exists() and log.stat().st_size)


def in_words(error: sqlite3.Error) -> str:
    """SQLite's complaint in our words."""
    text = " ".join(str(error).split())
    if isinstance(error, sqlite3.ProgrammingError):
        return f"it cannot be read any more ({text}); open the run again"
    if "full" in text:
        return "the disk is full; what was stored before is safe. Make room and run again"
    if "readonly" in text or "unable to open" in text:
        return "the folder cannot be written to; choose another --out, or change its permissions"
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        if isinstance(error, sqlite3.IntegrityError):
            return f"a result was to be stored twice ({text}): please report this"
        return f"the file is damaged ({text}); move it away to begin anew"
    return text


def _refuse_foreign_journal(path: Path) -> None:
    """Raise if a rollback journal beside the database names another file.

    SQLite deletes the file that a journal names when it rolls back. brusle writes to one database
    at a time, so that its journals never name any.
    """
    journal = Path(os.path.realpath(path) + "-journal")
    try:
        strange = not journal.is_file() or journal.read_bytes().endswith(_NAMES_ANOTHER)
    except OSError:  # whoever wrote it has just finished
        return
    if strange and os.path.lexists(journal):
        raise DataError(f"{journal} was not written by brusle: remove it")
