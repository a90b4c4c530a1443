"""Intervals of the paired bootstrap over images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from brusle.evaluation.statistics.rates import Estimate

Totals = NDArray[np.float64]
_RESAMPLES = 4000


def estimates(
    pairs: Sequence[tuple[str, tuple[float, ...]]],
    contrast: Callable[[Totals], tuple[Totals, ...]],
    seed: int,
) -> list[Estimate]:
    """What ``contrast`` makes of the sums of numbers over pairs, with bootstrap intervals.

    Args:
        pairs: the image of each pair, and its numbers.
        contrast: results from the number of pairs and the sums.
        seed: of the bootstrap.
    """
    places = {image: place for place, image in enumerate(dict.fromkeys(x for x, _ in pairs))}
    sums = np.zeros((len(places), 1 + len(pairs[0][1])))
    for image, numbers in pairs:
        sums[places[image]] += (1, *numbers)
    values, draws = contrast(sums.sum(axis=0)), contrast(_resampled(sums, seed).T)
    return [_estimate(value, drawn) for value, drawn in zip(values, draws, strict=True)]


def _resampled(sums: Totals, seed: int) -> Totals:
    """Totals over as many images, drawn with replacement, many times."""
    generator, n = np.random.default_rng(seed), len(sums)
    draws = (generator.integers(n, size=n) for _ in range(_RESAMPLES))
    return np.stack([np.bincount(drawn, minlength=n) @ sums for drawn in draws])


def _estimate(value: Totals, draws: Totals) -> Estimate:
    # Both ends are draws: swapping the attacks then gives exactly the mirrored interval.
    low = np.quantile(draws, 0.025, method="lower")
    high = np.quantile(draws, 0.975, method="higher")
    return Estimate(float(value), float(low), float(high))
