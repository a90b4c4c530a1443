"""How many rows of which status: the rates, and nobody else counts statuses."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from brusle.evaluation.record import Row
from brusle.evaluation.statistics.rates import Rate
from brusle.outcomes import ANSWERED, ATTACKED, CLAIMED, HIT, ROBUST


def attacked(rows: Sequence[Row]) -> list[Row]:
    """The rows that success rates and costs are taken over."""
    return [row for row in rows if row.status in ATTACKED]


def answered(rows: Sequence[Row]) -> list[Row]:
    """The rows that robust accuracy is taken over."""
    return [row for row in rows if row.status in ANSWERED]


def won(row: Row, queries: float = math.inf, pixels: float = math.inf) -> bool:
    """Whether it is a success within so many queries and pixels."""
    return row.status == HIT and row.queries <= queries and row.pixels <= pixels


def stands(row: Row, queries: float = math.inf, pixels: float = math.inf) -> bool:
    """Whether the image is classified correctly within so many queries and pixels."""
    if row.status in CLAIMED:
        return row.queries > queries or row.pixels > pixels
    return row.status == ROBUST


def success_rate(rows: Sequence[Row], queries: float = math.inf, pixels: float = math.inf) -> Rate:
    """Attack success rate within so many queries and changed pixels, over attacked images."""
    return Rate(sum(won(row, queries, pixels) for row in rows), len(attacked(rows)))


def stable_rate(rows: Sequence[Row], queries: float = math.inf) -> Rate:
    """The same of successes that can be repeated."""
    hits = sum(won(row, queries) and row.stable for row in rows)
    return Rate(hits, len(attacked(rows)))


def robust_accuracy(
    rows: Sequence[Row], queries: float = math.inf, pixels: float = math.inf
) -> Rate:
    """Images not fooled within so many queries and changed pixels, over all without error."""
    return Rate(sum(stands(row, queries, pixels) for row in rows), len(answered(rows)))


def success_rate_of(counts: Mapping[str, int]) -> Rate:
    """Attack success rate, given how many rows have each status."""
    return Rate(counts.get(HIT, 0), sum(counts.get(status, 0) for status in ATTACKED))


def success_steps(rows: Sequence[Row], limit: int) -> dict[int, Rate]:
    """The success rate at 0 queries, wherever it rises, and at the limit."""
    hits = sorted(row.queries for row in rows if won(row))
    count = len(attacked(rows))
    return {mark: Rate(bisect_right(hits, mark), count) for mark in sorted({0, *hits, limit})}


def success_grid(
    rows_by_pixels: Mapping[int, Sequence[Row]], queries: Iterable[int]
) -> dict[tuple[int, int], Rate]:
    """Success rates by (queries, pixels).

    Args:
        rows_by_pixels: rows of the same attack with several pixel budgets.
        queries: numbers of queries.
    """
    return {
        (number, pixels): success_rate(rows, number)
        for number in queries
        for pixels, rows in rows_by_pixels.items()
    }
