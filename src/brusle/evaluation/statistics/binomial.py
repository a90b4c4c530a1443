"""Exact tails of the binomial distribution, and the bounds of Clopper and Pearson (1934).

The intervals of `Rate` are for readers: Wilson's cover 95 % on average over rates, and less at
some. Who must not be wrong more often than he says takes these, which hold for every rate and
number.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

_STEPS = 60  # of a bisection: more than a float can tell apart


def log_mass(hits: NDArray[np.int64], count: int, rate: float) -> NDArray[np.float64]:
    """Logarithm of the probability of so many hits; ``rate`` lies strictly between 0 and 1."""
    factorials = _log_factorials(1 << count.bit_length())
    ways = factorials[count] - factorials[hits] - factorials[count - hits]
    logs: NDArray[np.float64] = ways + hits * math.log(rate) + (count - hits) * math.log1p(-rate)
    return logs


def log_at_most(hits: int, count: int, rate: float) -> float:
    """Logarithm of the probability of so many hits or fewer."""
    if hits >= count:
        return 0.0
    if hits < 0:
        return -math.inf
    logs = log_mass(np.arange(hits + 1), count, rate)
    most = float(logs.max())
    return min(0.0, most + math.log(float(np.exp(logs - most).sum())))


def at_most(hits: int, count: int, rate: float) -> float:
    """Probability of so many hits or fewer."""
    return math.exp(log_at_most(hits, count, rate))


def at_least(hits: int, count: int, rate: float) -> float:
    """Probability of so many hits or more."""
    return at_most(count - hits, count, 1 - rate)


def lower_bound(hits: int, count: int, alpha: float) -> float:
    """A rate that the true one is below with a probability of at most ``alpha``."""
    if hits == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if at_least(hits, count, middle) <= alpha else (low, middle)
    return low


def upper_bound(hits: int, count: int, alpha: float) -> float:
    """A rate that the true one is above with a probability of at most ``alpha``."""
    return 1 - lower_bound(count - hits, count, alpha)


@cache
def _log_factorials(count: int) -> NDArray[np.float64]:
    """Of 0 to ``count``."""
    return np.array([math.lgamma(number + 1) for number in range(count + 1)])
