"""Single photographs: what a service says of each, before and after, and what that took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from brusle.evaluation.paper.presets import Part, Preset
from brusle.evaluation.paper.results import paper_results, pixels_of
from brusle.evaluation.paper.rows import PartRows
from brusle.evaluation.record import Row
from brusle.evaluation.running.listed_targets import Labels, Listed
from brusle.evaluation.statistics import attacked
from brusle.evaluation.statistics.costs import cost_of, spent
from brusle.evaluation.statistics.rates import or_none
from brusle.evaluation.storing.rows import rebuild
from brusle.evaluation.storing.runs import Run

Answer = tuple[tuple[str, float], ...]  # labels and scores, the best first


@dataclass(frozen=True)
class Try:
    """An attack on a photograph.

    Attributes:
        attack: as the paper calls it.
        pixels: the pixel budget.
        limit: the query limit.
        status: as in `brusle.results.AttackResult`.
        queries: what it took.
        answer: what the service says of the final image.
        image: the final image.
    """

    attack: str
    pixels: int
    limit: int
    status: str
    queries: int
    answer: Answer
    image: Tensor

    @property
    def fooled(self) -> bool:
        """Whether the target is on top."""
        return self.status == "success"

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the image."""
        words = {name: getattr(self, name) for name in ("attack", "pixels", "status", "queries")}
        return words | {"answer": [list(label) for label in self.answer]}


@dataclass(frozen=True)
class Photograph:
    """A photograph with one target.

    Attributes:
        name: of the image.
        label: what the service calls it.
        target: what it is to be called.
        answer: what the service says of it.
        image: the photograph.
        tries: one for each line and pixel budget.
    """

    name: str
    label: str
    target: str
    answer: Answer
    image: Tensor
    tries: tuple[Try, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the images."""
        words = {name: getattr(self, name) for name in ("name", "label", "target")}
        answer = [list(label) for label in self.answer]
        return words | {"answer": answer, "attacks": [one.as_dict() for one in self.tries]}


@dataclass(frozen=True)
class Effort:
    """Queries of so many attacks, a failure counting as the limit; NaN of none.

    Attributes:
        photographs: how many.
        successes: how many of them were fooled.
        total: queries of all.
        mean: of each.
        median: likewise.
    """

    photographs: int
    successes: int
    total: int
    mean: float
    median: float

    @classmethod
    def of(cls, queries: Sequence[int], successes: int) -> Effort:
        """Of the queries of each attack."""
        cost = cost_of(queries)
        return cls(cost.count, successes, sum(queries), cost.mean, cost.median)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN."""
        return asdict(self) | {"mean": or_none(self.mean), "median": or_none(self.median)}


@dataclass(frozen=True)
class LineEffort:
    """What a line of the table took, on our photographs and on the paper's, which are others.

    Attributes:
        attack: as the paper calls it.
        pixels: the pixel budget.
        limit: the query limit.
        ours: ours.
        paper: the paper's, if its attacks had ended at our limit; None where it has no numbers.
    """

    attack: str
    pixels: int
    limit: int
    ours: Effort
    paper: Effort | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        words = {name: getattr(self, name) for name in ("attack", "pixels", "limit")}
        paper = None if self.paper is None else self.paper.as_dict()
        return words | {"ours": self.ours.as_dict(), "paper": paper}


@dataclass(frozen=True)
class Album:
    """All photographs of a part.

    Attributes:
        photographs: each with one target.
        passed_over: photographs whose list was too short for a target, or that were refused.
        asked: queries that the choice took.
        efforts: what each line took.
    """

    photographs: tuple[Photograph, ...]
    passed_over: int
    asked: int
    efforts: tuple[LineEffort, ...]

    @classmethod
    def of(cls, preset: Preset, rows: PartRows, run: Run, listed: Listed) -> Album:
        """What was stored of a part.

        Args:
            preset: the table.
            rows: what was stored.
            run: the run that they are of, for its images.
            listed: how the photographs were chosen.
        """
        lines = dict(_lines(rows))
        pairs = dict.fromkeys((row.image, row.label, row.target) for row in _all(lines))
        return cls(
            tuple(_photograph(*pair, lines, run, listed) for pair in pairs),
            listed.passed_over,
            listed.manifest.queries,
            tuple(
                LineEffort(
                    *line,
                    _effort(mine, line[2]),
                    paper_effort(preset, rows.part, *line),
                )
                for line, mine in lines.items()
            ),
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "photographs": [one.as_dict() for one in self.photographs],
            "passed_over": self.passed_over,
            "asked": self.asked,
            "efforts": [one.as_dict() for one in self.efforts],
        }


_Line = tuple[str, int, int]  # attack, pixels, limit


def paper_effort(preset: Preset, part: Part, attack: str, pixels: int, limit: int) -> Effort | None:
    """What the paper's attacks took, if they had ended at ``limit``; None if it has no numbers."""
    queries = [
        number.value
        for number in paper_results(preset.table, model=part.model)
        if number.attack == attack
        and number.sparsity_percent is not None
        and pixels_of(number.dataset, number.sparsity_percent) == pixels
        and number.queries >= limit
    ]
    if not queries:
        return None
    won = sum(number <= limit for number in queries)
    return Effort.of([int(min(number, limit)) for number in queries], won)


def _lines(rows: PartRows) -> Iterator[tuple[_Line, Sequence[Row]]]:
    part = rows.part
    for pixels in part.pixels:
        for line, mark in part.readings():
            mine = rows.read(line, pixels, mark, part.seeds[0])
            yield (line.paper, pixels, mark), mine


def _all(lines: Mapping[_Line, Sequence[Row]]) -> Iterator[Row]:
    return (row for mine in lines.values() for row in mine)


def _effort(rows: Sequence[Row], limit: int) -> Effort:
    counted = attacked(rows)
    won = sum(row.status == "success" for row in counted)
    return Effort.of([spent(row, limit) for row in counted], won)


def _photograph(
    name: str,
    label: int,
    target: int | None,
    lines: Mapping[_Line, Sequence[Row]],
    run: Run,
    listed: Listed,
) -> Photograph:
    assert target is not None  # such parts are targeted
    image, names = run.originals.take([name])[0], run.classes
    tries = [
        Try(*line, row.status, row.queries, _named(_ranked(row), names), rebuild(row, image))
        for line, rows in lines.items()
        for row in rows
        if (row.image, row.target) == (name, target)
    ]
    answer = _named(listed.lists[name], names)
    return Photograph(name, names[label], names[target], answer, image, tuple(tries))


def _ranked(row: Row) -> Labels:
    """The labels of a row's final image, the best first."""
    scores = np.frombuffer(row.scores)
    order = np.argsort(-scores, kind="stable").tolist()
    return tuple((number, float(scores[number])) for number in order if np.isfinite(scores[number]))


def _named(labels: Labels, names: Sequence[str]) -> Answer:
    return tuple((names[number], score) for number, score in labels)
