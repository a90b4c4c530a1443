"""Numbers with their uncertainty."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from brusle.outcomes import share

Z95 = statistics.NormalDist().inv_cdf(0.975)


def or_none(value: float) -> float | None:
    """The number for JSON, which knows no NaN."""
    return None if math.isnan(value) else value


@dataclass(frozen=True)
class Rate:
    """A share ``hits / count`` with its 95 % Wilson score interval."""

    hits: int
    count: int

    @property
    def value(self) -> float:
        """The share; NaN of nothing."""
        return share(self.hits, self.count)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson score interval (JASA 1927): sound near 0 and 1, where mean +- 2 sigma is not."""
        n, z = self.count, Z95
        if n == 0:
            return 0.0, 1.0
        p = self.hits / n
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, centre - half), min(1.0, centre + half)

    def __str__(self) -> str:
        """``61 % [54, 68]``, and ``-`` of nothing."""
        low, high = (f"{100 * end:.0f}" for end in self.interval)
        return f"{100 * self.value:.0f} % [{low}, {high}]" if self.count else "-"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        low, high = self.interval
        return {
            "value": or_none(self.value),
            "low": low,
            "high": high,
            "hits": self.hits,
            "count": self.count,
        }


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether the interval does not hold ``value``."""
        return not self.low <= value <= self.high

    def as_dict(self) -> dict[str, float | None]:
        """For JSON; what is not finite is None."""
        return {name: x if math.isfinite(x) else None for name, x in vars(self).items()}
