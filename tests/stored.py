"""What a run folder holds, to be compared with what another holds."""

from dataclasses import replace
from pathlib import Path

from brusle.evaluation.record import Row
from brusle.evaluation.storing.store import Store


def stored(folder: Path) -> dict[tuple[int, int], Row]:
    """The rows of a run folder, without what differs from run to run."""
    with Store.read(folder) as store:
        return {
            (setting.number, row.problem): replace(row, seconds=0.0)
            for setting in store.settings()
            for row in store.rows(setting.number)
        }
