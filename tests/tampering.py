"""Changes to a store by another hand than brusle's."""

import sqlite3
from pathlib import Path
from typing import Any

from brusle.database import checksum
from brusle.evaluation.storing.store import FILE


def tamper(folder: Path, table: str, where: str = "TRUE", sums: bool = True, **changes: Any) -> int:
    """Change columns of some rows of a table.

    Args:
        folder: the run folder.
        table: the table.
        where: which rows, in SQL.
        sums: a hand that knows of checksums, and makes new ones.
        **changes: columns and their new values.

    Returns:
        How many rows were changed.
    """
    connection = sqlite3.connect(folder / FILE)
    try:
        with connection:
            columns = [line[1] for line in connection.execute(f"PRAGMA table_info({table})")]
            found = connection.execute(f"SELECT * FROM {table} WHERE {where}").fetchall()
            for row in found:
                old = dict(zip(columns, row, strict=True))
                new = old | changes
                if sums:
                    summed = [n for n in columns if n not in ("id", "checksum")]
                    new["checksum"] = checksum(*(new[name] for name in summed))
                keys = {"settings": ["id"], "rows": ["setting", "problem"]}
                key = keys.get(table, columns[:1])
                marks = ", ".join(f"{name} = ?" for name in new)
                same = " AND ".join(f"{name} = ?" for name in key)
                values = [*new.values(), *(old[name] for name in key)]
                connection.execute(f"UPDATE {table} SET {marks} WHERE {same}", values)
            return len(found)
    finally:
        connection.close()
