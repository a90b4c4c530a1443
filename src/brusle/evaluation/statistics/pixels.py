"""The fewest pixels that fool images, as far as a search has found them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from brusle.evaluation.record import Row
from brusle.evaluation.statistics.counting import attacked, robust_accuracy, won
from brusle.evaluation.statistics.rates import Estimate, Rate, or_none
from brusle.outcomes import CLAIMED


@dataclass(frozen=True)
class PixelsNeeded:
    """The fewest pixels that fool images, as far as a search has found them.

    An image that was not fooled needs more than the limit, nobody knows how many. So a quartile
    that lies among such images is infinite, and of the mean only a bound is known.

    Attributes:
        limit: most pixels that the search was allowed.
        lower: the fewest pixels with which a quarter of the attacked images are fooled.
        median: the same of half of them.
        upper: the same of three quarters.
        mean: over the images that were fooled; NaN without any.
        bound: over all attacked images, one that was not fooled counting as one pixel more than
            the limit: the mean is at least that. NaN without any.
        robust: robust accuracy if so many pixels may be changed: at 0, wherever it falls, and at
            the limit.
    """

    limit: int
    lower: Estimate
    median: Estimate
    upper: Estimate
    mean: float
    bound: float
    robust: dict[int, Rate] = field(hash=False)

    @classmethod
    def of(cls, rows: Sequence[Row], limit: int) -> PixelsNeeded:
        """Summarise rows of a search for the fewest pixels, at most ``limit``."""
        fooled = [row.pixels for row in rows if won(row, pixels=limit)]
        broken = {row.pixels for row in rows if row.status in CLAIMED}
        marks = sorted({0, *(pixels for pixels in broken if pixels < limit), limit})
        lower, median, upper = (_needed_by(rows, limit, share) for share in (0.25, 0.5, 0.75))
        return cls(
            limit=limit,
            lower=lower,
            median=median,
            upper=upper,
            mean=float(np.mean(fooled)) if fooled else math.nan,
            bound=mean_needed(rows, limit),
            robust={mark: robust_accuracy(rows, pixels=mark) for mark in marks},
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON; a quartile of None is more than the limit, if any image was attacked."""
        quartiles = {"lower_quartile": self.lower, "median": self.median}
        return {
            "limit": self.limit,
            **{name: x.as_dict() for name, x in quartiles.items()},
            "upper_quartile": self.upper.as_dict(),
            "mean_of_fooled": or_none(self.mean),
            "mean_at_least": or_none(self.bound),
            "robust_accuracy_within": {str(p): rate.as_dict() for p, rate in self.robust.items()},
        }


def needed(row: Row, limit: int) -> int:
    """Pixels that fooled an image; one more than the limit if none did."""
    return row.pixels if won(row, pixels=limit) else limit + 1


def mean_needed(rows: Sequence[Row], limit: int) -> float:
    """Mean pixels needed over attacked images; NaN without any.

    An image that was not fooled within ``limit`` pixels counts as one pixel more, the fewest that
    it can need.
    """
    found = [needed(row, limit) for row in attacked(rows)]
    return float(np.mean(found)) if found else math.nan


def _needed_by(rows: Sequence[Row], limit: int, share: float) -> Estimate:
    """The fewest pixels with which a share of the attacked images is fooled.

    The interval holds the numbers of pixels at which the Wilson interval of the share that is
    fooled holds ``share``.
    """
    counts = Counter(needed(row, limit) for row in attacked(rows))
    if not counts:
        return Estimate(math.nan, math.nan, math.nan)
    found, fooled = [math.inf] * 3, 0
    for pixels in sorted({1, *(pixels for pixels in counts if pixels <= limit)}):
        fooled += counts[pixels]
        rate = Rate(fooled, counts.total())
        for at, reached in enumerate((rate.value, rate.interval[1], rate.interval[0])):
            if reached >= share:
                found[at] = min(found[at], pixels)
    return Estimate(*found)
