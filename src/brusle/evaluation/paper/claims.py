"""Whether stored rows bear out what the paper's text claims about a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from brusle.evaluation.paper.presets import Claim
from brusle.evaluation.paper.rows import PartRows
from brusle.evaluation.record import Row
from brusle.evaluation.statistics import (
    FEWEST_IMAGES,
    Comparison,
    attacked,
    clearly_ahead,
    compare,
    success_rate,
)
from brusle.evaluation.statistics.rates import Rate, or_none

ClaimVerdict = Literal["held", "within noise", "contradicted"]
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
class CheckedClaim:
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
    verdict: ClaimVerdict

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN."""
        return asdict(self) | {"value": or_none(self.value), "queries": list(self.queries)}


def check_claims(rows: PartRows) -> Iterator[CheckedClaim]:
    """Each claim at each of its budgets, and at each mark unless all its lines have their own."""
    part = rows.part
    lines = {line.title: line for line in part.lines}
    (seed,) = part.seeds if part.claims else (0,)
    for claim in part.claims:
        mine = [lines[title] for title in (claim.line, claim.other) if title is not None]
        for pixels in (p for p in part.pixels if p in (claim.pixels or part.pixels)):
            marks = dict.fromkeys(tuple(e.queries or mark for e in mine) for mark in part.marks)
            for chosen in marks:
                readings = [
                    Reading(rows.read(line, pixels, mark, seed), mark)
                    for line, mark in zip(mine, chosen, strict=True)
                ]
                yield check_claim(claim, pixels, *readings)


def check_claim(
    claim: Claim, pixels: int, line: Reading, other: Reading | None = None
) -> CheckedClaim:
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
        return CheckedClaim(claim.text, pixels, queries, value, None, None, "within noise")
    found = compare(first, second, max(queries))
    value, low, high = (100 * end for end in vars(found.difference).values())
    verdict = _above(first, second, max(queries)) if claim.order == "above" else _level(found)
    return CheckedClaim(claim.text, pixels, queries, value, low, high, verdict)


def _above(first: Sequence[Row], second: Sequence[Row], limit: int) -> ClaimVerdict:
    if clearly_ahead(first, second, limit):
        return "held"
    return "contradicted" if clearly_ahead(second, first, limit) else "within noise"


def _level(found: Comparison) -> ClaimVerdict:
    """By the whole interval: a difference that is not seen may only be hidden."""
    low, high = found.difference.low, found.difference.high
    if low > MARGIN or high < -MARGIN:
        return "contradicted"
    small = low >= -MARGIN and high <= MARGIN
    return "held" if small and _enough(found.images) else "within noise"


def _never(claim: Claim, pixels: int, line: Reading) -> CheckedClaim:
    """Any success contradicts it; without one, only enough images speak for it."""
    rate = success_rate(line.rows, line.queries)
    low, high = (100 * end for end in rate.interval)
    verdict: ClaimVerdict = "held" if _enough(line.images) else "within noise"
    if rate.hits:
        verdict = "contradicted"
    return CheckedClaim(claim.text, pixels, (line.queries,), 100 * rate.value, low, high, verdict)


def _enough(images: int) -> bool:
    """Whether what none of so many images shows is rare (95 %)."""
    return Rate(0, images).interval[1] <= MARGIN
