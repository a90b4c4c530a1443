"""The stored rows of a part of a table, by its lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brusle.attacks import make
from brusle.evaluation.paper.presets import Part, TableLine
from brusle.evaluation.record import Row, Setting
from brusle.evaluation.storing.runs import Run


@dataclass(frozen=True)
class PartRows:
    """What was stored of a part.

    Attributes:
        part: the part.
        by_setting: rows by the key of their setting.
    """

    part: Part
    by_setting: Mapping[str, Sequence[Row]]

    @classmethod
    def of(cls, part: Part, run: Run) -> PartRows:
        """The rows of a run of the part."""
        return cls(part, {setting.key: run.stored(setting) for setting in run.settings})

    def read(self, line: TableLine, pixels: int, mark: int, seed: int) -> Sequence[Row]:
        """The rows that a line is read from."""
        attack = make(line.attack, pixels, self.part.limit(line, mark))
        return self.by_setting[Setting.of(attack, self.part.goal, seed).key]
