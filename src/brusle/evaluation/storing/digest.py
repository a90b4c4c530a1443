"""One hash that says which rows a run has, for whoever gets the run or makes it again.

What depends on the machine alone is left out: seconds, and scores and losses, of which the last
bits may differ. So the same command gives the same hash, as far as the victim answers with the same
labels.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields

from brusle.evaluation.record import Row, canonical
from brusle.evaluation.storing.runs import Run

_OF_THE_MACHINE = ("loss", "scores", "seconds")
_HASHED = tuple(field.name for field in fields(Row) if field.name not in _OF_THE_MACHINE)


def rows_digest(run: Run) -> str:
    """SHA-256 over all settings and rows that a run's store holds, whatever their order in it."""
    found = hashlib.sha256()
    for setting in sorted(run.store.settings(), key=lambda setting: setting.key):
        found.update(f"{setting.key}\n".encode())
        rows = run.store.rows(setting.number)
        for line in sorted(canonical(_facts(row)) for row in rows):
            found.update(f"{line}\n".encode())
    return found.hexdigest()


def _facts(row: Row) -> list[object]:
    values = [getattr(row, name) for name in _HASHED]
    return [value.hex() if isinstance(value, bytes) else value for value in values]
