"""Whether stored rows bear out what the paper's text claims about a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from brusle.evaluation.paper.presets import Claim
from brusle.evaluation.statistics import (
    FEWEST_IMAGES,
    Comparison,
    Rate,
    attacked,
    clearly_ahead,
    compare,
    success_rate,
)
from brusle.evaluation.statistics.rates import or_none
from brusle.evaluation.storing.store import Row

Verdict = Literal["held", "within noise", "contradicted"]
MARGIN = 0.1  # a difference up to this is called level, and a rate up to this may be zero


@dataclass(frozen=True)
class Reading:
    """Rows of one attack, read at a number of queries that may be lower than its limit."""

    rows: Sequence[Row]
    queries: int

    @property
    def images(self) -> int:
        """How many images they are of."""
        return len({row.image for row in attacked(self.rows)})

    def cut(self) -> list[Row]:
        """The rows as a run with that limit would have left them: what came later is a failure."""
        return [replace(row, status="failed") if self._late(row) else row for row in self.rows]

    def _late(self, row: Row) -> bool:
        return row.status == "success" and row.queries > self.queries


@dataclass(frozen=True)
class Finding:
    """A claim of the paper's text, and what our runs say of it.

    Attributes:
        claim: the claim, for people.
        pixels: the pixel budget.
        queries: at how many queries its lines were read.
        value: in percent; the difference of success rates, or the success rate if only one line
            is concerned. NaN if nothing was attacked.
        low: its 95 % interval; None with fewer images than `FEWEST_IMAGES`.
        high: likewise.
        verdict: what follows.
    """

    claim: str
    pixels: int
    queries: tuple[int, ...]
    value: float
    low: float | None
    high: float | None
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN."""
        return asdict(self) | {"value": or_none(self.value), "queries": list(self.queries)}


def check(claim: Claim, pixels: int, line: Reading, other: Reading | None = None) -> Finding:
    """What the rows say of a claim.

    Args:
        claim: the claim.
        pixels: the pixel budget of the rows.
        line: the line that the claim is about.
        other: the other one, on the same problems; None if the claim is about one alone.
    """
    if other is None:
        return _never(claim, pixels, line)
    queries = (line.queries, other.queries)
    first, second = line.cut(), other.cut()
    if min(line.images, other.images) < FEWEST_IMAGES:
        value = 100 * (success_rate(first).value - success_rate(second).value)
        return Finding(claim.text, pixels, queries, value, None, None, "within noise")
    found = compare(first, second, max(queries))
    value, low, high = (100 * end for end in vars(found.difference).values())
    verdict = _above(first, second, max(queries)) if claim.order == "above" else _level(found)
    return Finding(claim.text, pixels, queries, value, low, high, verdict)


def _above(first: Sequence[Row], second: Sequence[Row], limit: int) -> Verdict:
    if clearly_ahead(first, second, limit):
        return "held"
    return "contradicted" if clearly_ahead(second, first, limit) else "within noise"


def _level(found: Comparison) -> Verdict:
    """By the whole interval: a difference that is not seen may only be hidden."""
    low, high = found.difference.low, found.difference.high
    if low > MARGIN or high < -MARGIN:
        return "contradicted"
    small = low >= -MARGIN and high <= MARGIN
    return "held" if small and _enough(found.images) else "within noise"


def _never(claim: Claim, pixels: int, line: Reading) -> Finding:
    """Any success contradicts it; without one, only enough images speak for it."""
    rate = success_rate(line.rows, line.queries)
    low, high = (100 * end for end in rate.interval)
    verdict: Verdict = "held" if _enough(line.images) else "within noise"
    if rate.hits:
        verdict = "contradicted"
    return Finding(claim.text, pixels, (line.queries,), 100 * rate.value, low, high, verdict)


def _enough(images: int) -> bool:
    """Whether what none of so many images shows is rare (95 %)."""
    return Rate(0, images).interval[1] <= MARGIN
