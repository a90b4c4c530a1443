"""Our numbers beside the paper's: the cells of a table, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from brusle.evaluation.paper.presets import (
    OVER_SEEDS,
    Metric,
    Part,
    Preset,
    TableLine,
    line_over_seeds,
)
from brusle.evaluation.paper.rows import PartRows
from brusle.evaluation.record import Row
from brusle.evaluation.statistics import attacked, over_seeds, robust_accuracy, success_rate
from brusle.evaluation.statistics.rates import Z95, Rate


@dataclass(frozen=True)
class Cell:
    """One number of ours beside the paper's, in percent.

    Attributes:
        attack: as the paper calls it.
        variant: as in `brusle.evaluation.paper.results.PaperNumber`.
        pixels: the pixel budget.
        queries: the number of queries.
        metric: likewise.
        ours: our number; NaN if nothing was attacked.
        low: its 95 % interval, see `interval`; None for numbers that have none.
        high: likewise.
        paper: the paper's number; None where it has none.
    """

    attack: str
    variant: str
    pixels: int
    queries: int
    metric: Metric
    ours: float
    low: float | None
    high: float | None
    paper: float | None

    @property
    def outside(self) -> bool:
        """Whether the paper's number lies outside our interval."""
        if self.paper is None or self.low is None or self.high is None:
            return False
        return not self.low <= self.paper <= self.high

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN."""
        ours = None if math.isnan(self.ours) else self.ours
        return asdict(self) | {"ours": ours, "outside": self.outside}


def cells(preset: Preset, rows: PartRows, area: int) -> Iterator[Cell]:
    """The cells of a part, in the table's order.

    Args:
        preset: the table.
        rows: what was stored of the part.
        area: how many pixels an image has.
    """
    part = rows.part
    for pixels in part.pixels:
        for line, mark in part.readings():
            runs = [rows.read(line, pixels, mark, seed) for seed in part.seeds]
            for told, ours, low, high in _numbers(part, line, runs, mark, area):
                paper = preset.paper(part, told, pixels, mark)
                about = (told.paper, told.variant, pixels, mark, part.metric)
                yield Cell(*about, ours, low, high, paper)


def interval(hits: Mapping[str, float], counts: Mapping[str, int]) -> tuple[float, float]:
    """A 95 % interval of the share ``hits / counts``, both given for each image.

    Targets of one image go together: what one of them costs, the others cost as well. So pairs
    count as fewer than they are, by the design effect (the variance between images over that of
    independent pairs). With one pair for each image this is Wilson's interval.
    """
    n = sum(counts.values())
    share = sum(hits.values()) / n if n else math.nan
    if not 0 < share < 1:  # nothing, or no variance to see
        return Rate(round(sum(hits.values())), n).interval
    effect = max(1.0, _variance(hits, counts) * n / (share * (1 - share)))
    return Rate(round(share * n / effect), round(n / effect)).interval


def _numbers(
    part: Part, line: TableLine, runs: Sequence[Sequence[Row]], mark: int, area: int
) -> Iterator[tuple[TableLine, float, float | None, float | None]]:
    """Percentages with their intervals: one, or with several seeds their statistics."""
    value, low, high = _measure([row for rows in runs for row in rows], part.metric, mark, area)
    if len(runs) == 1:
        yield line, value, low, high
        return
    spread = over_seeds(runs, lambda rows: _measure(rows, part.metric, mark, area)[0])
    for which in OVER_SEEDS:
        ends = (low, high) if which == "mean" else (None, None)
        yield line_over_seeds(line, len(runs), which), getattr(spread, which), *ends


def _measure(
    rows: Sequence[Row], metric: Metric, mark: int, area: int
) -> tuple[float, float, float]:
    """A percentage and its interval."""
    images: dict[str, list[Row]] = {}
    for row in rows:
        images.setdefault(row.image, []).append(row)
    totals = {image: _total(mine, metric, mark, area) for image, mine in images.items()}
    hits = {image: hit for image, (hit, _) in totals.items()}
    counts = {image: count for image, (_, count) in totals.items()}
    n = sum(counts.values())
    value = sum(hits.values()) / n if n else math.nan
    if metric == "mean sparsity":
        half = Z95 * math.sqrt(_variance(hits, counts))
        low, high = max(0.0, value - half), min(1.0, value + half)
    else:
        low, high = interval(hits, counts)
    return 100 * value, 100 * low, 100 * high


def _total(rows: Sequence[Row], metric: Metric, mark: int, area: int) -> tuple[float, int]:
    """What the rows of one image add to a mean, and how many they count as."""
    if metric == "mean sparsity":
        counted = attacked(rows)
        return sum(row.pixels for row in counted) / area, len(counted)
    rate = success_rate(rows, mark) if metric == "asr" else robust_accuracy(rows, mark)
    return rate.hits, rate.count


def _variance(hits: Mapping[str, float], counts: Mapping[str, int]) -> float:
    """Variance of the mean of all, if images are drawn with all their targets."""
    n = sum(counts.values())
    if not n:
        return math.nan
    mean = sum(hits.values()) / n
    return sum((hits[image] - mean * counts[image]) ** 2 for image in hits) / n**2
