"""The tables of a store, and what must hold of all of them.

Every row of every table carries a checksum of its other columns (the number of a setting apart). It
tells damage, and changes by a hand that did not know of it; it is no signature.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from brusle.database import layout, layout_of
from brusle.evaluation.record import FORMAT

TABLES = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum TEXT NOT NULL);
CREATE TABLE settings (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, description TEXT NOT NULL,
    checksum TEXT NOT NULL
);
CREATE TABLE images (
    name TEXT PRIMARY KEY, label INTEGER NOT NULL, sha256 TEXT NOT NULL, checksum TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE rows (setting INTEGER NOT NULL REFERENCES settings,
    problem INTEGER, image TEXT, label INTEGER, target INTEGER, status TEXT, stable INTEGER,
    queries INTEGER, clean INTEGER, initial INTEGER, search INTEGER, verify INTEGER,
    lost INTEGER, backward INTEGER, pixels INTEGER, clean_label INTEGER, final_label INTEGER,
    loss REAL, scores BLOB, edits BLOB, found_by TEXT, error TEXT, seconds REAL,
    checksum TEXT NOT NULL, PRIMARY KEY (setting, problem)) WITHOUT ROWID;
"""
CHANGED = "its checksum does not fit"


class Damaged(Exception):  # noqa: N818 - the store makes an error of it
    """Something in a store that brusle has not written, in a few words."""


def checksum(*values: Any) -> str:
    """Of what the other columns of a row hold, in their order and as SQLite gives them."""
    return hashlib.sha256(ascii(values).encode()).hexdigest()[:16]


def with_checksum(*values: Any) -> tuple[Any, ...]:
    """A row, ready to be stored."""
    return (*values, checksum(*values))


def require_unchanged(rows: Sequence[Sequence[Any]], what: str) -> None:
    """Raise unless all rows, with their checksums at the end, are as they were stored."""
    for name, *values, stated in rows:
        if checksum(name, *values) != stated:
            raise Damaged(f"{what} {name!r}: {CHANGED}")


def require_text(rows: Iterable[Iterable[Any]]) -> None:
    """Raise unless all columns of all rows are text."""
    if not all(isinstance(value, str) for row in rows for value in row):
        raise Damaged("something in it is no text")


def create(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database, in one transaction."""
    stated = json.dumps(FORMAT)
    first = f"INSERT INTO about VALUES ('format', '{stated}', '{checksum('format', stated)}')"
    connection.executescript(f"BEGIN; {TABLES} {first}; COMMIT")


def stated_format(connection: sqlite3.Connection) -> str | None:
    """The version of the schema, as a store says it; None if it is no store."""
    if "about" not in [name for kind, name, _ in layout(connection) if kind == "table"]:
        return None
    found = connection.execute("SELECT value FROM about WHERE key = 'format'").fetchone()
    return found and " ".join(str(found[0])[:40].strip('"').split())


def require_sound(connection: sqlite3.Connection) -> None:
    """Raise unless these are the tables of a store, whole and in order, and nothing else."""
    if layout(connection) != layout_of(TABLES):
        raise sqlite3.DatabaseError("its tables are not those that brusle makes")
    verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)
    if connection.execute("PRAGMA foreign_key_check").fetchone():
        raise sqlite3.DatabaseError("it has rows of a setting that it does not have")
    # some versions of SQLite do not look at the order of tables without row ids
    for query in ("SELECT setting, problem FROM rows", "SELECT name FROM images"):
        _require_order(connection.execute(query).fetchall())


def _require_order(keys: Sequence[tuple[Any, ...]]) -> None:
    """Raise if keys are not found in their order, where SQLite would look for them in vain."""
    try:
        ordered = all(one < other for one, other in pairwise(keys))
    except TypeError:  # a text among numbers
        ordered = False
    if not ordered:
        raise sqlite3.DatabaseError("rows are out of order")
