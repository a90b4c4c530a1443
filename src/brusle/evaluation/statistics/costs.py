"""What successes and failures cost, in queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brusle.errors import InputError
from brusle.evaluation.record import Row
from brusle.evaluation.statistics.counting import attacked, won


@dataclass(frozen=True)
class Cost:
    """Queries of so many attacks; mean and median of none are NaN."""

    mean: float
    median: float
    count: int


def check_limit(limit: int) -> None:
    """Raise unless ``limit`` can be a number of queries."""
    if limit < 1:
        raise InputError(f"limit is {limit}: give the query limit of the attack, 1 or more")


def spent(row: Row, limit: int) -> int:
    """Queries, a failure counting as the limit."""
    return row.queries if won(row, limit) else limit


def cost(rows: Sequence[Row], limit: int) -> Cost:
    """Queries over attacked images, a failure counting as the limit."""
    check_limit(limit)
    return cost_of([spent(row, limit) for row in attacked(rows)])


def success_cost(rows: Sequence[Row], limit: int) -> Cost:
    """Queries over successes; say how many there are, because a weak attack has the easy ones."""
    check_limit(limit)
    return cost_of([row.queries for row in rows if won(row, limit)])


def area_under_curve(rows: Sequence[Row], limit: int) -> float:
    """Area under the success rate over queries 0 to ``limit``, divided by ``limit``.

    0 is an attack that never succeeds, and 1 one that needs no queries. The curve is a step
    function, so this is exact: 1 - (mean queries, a failure counting as the limit) / limit.
    """
    return 1 - cost(rows, limit).mean / limit


def cost_of(queries: Sequence[int]) -> Cost:
    """Mean and median."""
    if not queries:
        return Cost(math.nan, math.nan, 0)
    return Cost(float(np.mean(queries)), float(np.median(queries)), len(queries))
