"""The tables of a store, and what must hold of all of them.

Every row of every table carries a checksum of its other columns (the number of a setting apart).
"""

from __future__ import annotations

import json
import sqlite3

from brusle.database import checksum, require_order, require_whole
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
TRACES = """
CREATE TABLE traces (setting INTEGER NOT NULL REFERENCES settings, problem INTEGER NOT NULL,
    trace BLOB NOT NULL, checksum TEXT NOT NULL, PRIMARY KEY (setting, problem));
"""
SEQUENCE = """
CREATE TABLE sequence (place INTEGER PRIMARY KEY, image TEXT NOT NULL UNIQUE,
    checksum TEXT NOT NULL);
"""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database, in one transaction."""
    stated = json.dumps(FORMAT)
    first = f"INSERT INTO about VALUES ('format', '{stated}', '{checksum('format', stated)}')"
    connection.executescript(f"BEGIN; {TABLES} {TRACES} {SEQUENCE} {first}; COMMIT")


def require_sound(connection: sqlite3.Connection, tables: str = TABLES + TRACES + SEQUENCE) -> None:
    """Raise unless these are the tables of a store, whole and in order, and nothing else."""
    require_whole(connection, tables)
    if connection.execute("PRAGMA foreign_key_check").fetchone():
        raise sqlite3.DatabaseError("it has rows of a setting that it does not have")
    # some versions of SQLite do not look at the order of tables without row ids
    for query in ("SELECT setting, problem FROM rows", "SELECT name FROM images"):
        require_order(connection.execute(query).fetchall())
