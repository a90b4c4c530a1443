"""Evidence about a rate that may be looked at after every image.

Who stops as soon as an interval says what he hopes for is wrong far more often than the interval
says. These bounds stay valid however often one looks, and whatever one stops by.

The evidence that a rate lies above a threshold is the likelihood of what was seen, averaged over
all rates above (each as likely as the others), over its likelihood at the threshold. If the rate is
the threshold or lower, this is a nonnegative supermartingale that begins at 1, because each of the
averaged ratios is one. So it ever reaches 1 / alpha with a probability of at most alpha (Ville
1939). The average is Robbins' method of mixtures (1970); over uniform rates it is

    P(Bin(n + 1, t) <= hits) / ((n + 1) (1 - t) P(Bin(n, t) = hits)).
"""

from __future__ import annotations

import math

import numpy as np

from brusle.evaluation.statistics.binomial import log_at_most, log_mass

_STEPS = 50


def log_evidence_above(hits: int, count: int, threshold: float) -> float:
    """Logarithm of the evidence that the rate is above ``threshold``."""
    seen = float(log_mass(np.array([hits]), count, threshold)[0])
    return log_at_most(hits, count + 1, threshold) - math.log((count + 1) * (1 - threshold)) - seen


def log_evidence_below(hits: int, count: int, threshold: float) -> float:
    """Logarithm of the evidence that the rate is below ``threshold``."""
    return log_evidence_above(count - hits, count, 1 - threshold)


def is_above(hits: int, count: int, threshold: float, alpha: float) -> bool:
    """Whether there is enough evidence; ever wrong with a probability of at most ``alpha``."""
    return log_evidence_above(hits, count, threshold) >= -math.log(alpha)


def is_below(hits: int, count: int, threshold: float, alpha: float) -> bool:
    """Whether there is enough evidence; ever wrong with a probability of at most ``alpha``."""
    return is_above(count - hits, count, 1 - threshold, alpha)


def lower_bound_always(hits: int, count: int, alpha: float) -> float:
    """The highest threshold that the rate `is_above`; at all times at once, with ``alpha``."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_above(hits, count, middle, alpha) else (low, middle)
    return low


def upper_bound_always(hits: int, count: int, alpha: float) -> float:
    """The lowest threshold that the rate `is_below`; at all times at once, with ``alpha``."""
    return 1 - lower_bound_always(count - hits, count, alpha)
