"""Changes to a store by another hand than brusle's, or by none."""

import random
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
                both = ["setting", "problem"]
                keys = {"settings": ["id"], "rows": both, "traces": both}
                key = keys.get(table, columns[:1])
                marks = ", ".join(f"{name} = ?" for name in new)
                same = " AND ".join(f"{name} = ?" for name in key)
                values = [*new.values(), *(old[name] for name in key)]
                connection.execute(f"UPDATE {table} SET {marks} WHERE {same}", values)
            return len(found)
    finally:
        connection.close()


def damage(content: bytes, seed: int) -> bytes:
    """A flipped bit, another byte, some bytes, some zeros, a cut, or a swapped pair of pages."""
    dice, changed = random.Random(seed), bytearray(content)
    at = dice.randrange(len(content))
    kind = seed % 6
    if kind == 0:
        changed[at] ^= 1 << dice.randrange(8)
    elif kind == 1:
        changed[at] = (changed[at] + dice.randrange(1, 256)) % 256
    elif kind == 2:
        end = min(len(content), at + dice.randrange(2, 64))
        changed[at:end] = dice.randbytes(end - at)
    elif kind == 3:
        end = min(len(content), at + dice.choice((16, 512, 4096)))
        changed[at:end] = bytes(end - at)
    elif kind == 4:
        del changed[at:]
    else:
        first, second = (4096 * dice.randrange(len(content) // 4096) for _ in range(2))
        a, b = changed[first : first + 4096], changed[second : second + 4096]
        changed[first : first + 4096], changed[second : second + 4096] = b, a
    return bytes(changed)
