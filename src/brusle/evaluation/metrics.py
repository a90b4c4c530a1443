"""Numbers with their uncertainty."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from brusle.results import AttackResult

Z95 = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Rate:
    """A share ``hits / count`` with its 95 % Wilson score interval."""

    hits: int
    count: int

    @property
    def value(self) -> float:
        """The share; NaN of nothing."""
        return self.hits / self.count if self.count else math.nan

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

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        low, high = self.interval
        value = self.value if self.count else None
        return {"value": value, "low": low, "high": high, "hits": self.hits, "count": self.count}


@dataclass(frozen=True)
class Summary:
    """One row of the final table.

    Attributes:
        images: all images.
        attacked: those that were classified correctly and without error.
        asr: successes over attacked (the paper's attack success rate).
        asr_at: the same within fewer queries.
        stable: stable successes over attacked; None unless the victim is randomised.
        robust: robust accuracy, failures of the attack over all images without error.
        median_queries: over attacked images, a failure counting as the limit.
        mean_queries: likewise.
        mean_pixels: changed pixels of the successes; NaN without any.
        errors: images on which the victim failed.
        unverified: reported successes that did not pass the check.
    """

    images: int
    attacked: int
    asr: Rate
    asr_at: dict[int, Rate]
    stable: Rate | None
    robust: Rate
    median_queries: float
    mean_queries: float
    mean_pixels: float
    errors: int
    unverified: int

    @classmethod
    def of(cls, result: AttackResult, at: tuple[int, ...] = ()) -> Summary:
        """Summarise one attack's result."""
        attacked, errors = int(result.attacked.sum()), result.status.count("error")
        hits = result.queries[result.success]
        limit = result.attack.queries
        cost = result.queries.clone()
        cost[~result.success] = limit
        spent = cost[result.attacked].tolist()
        pixels = result.pixels[result.success].tolist()
        return cls(
            images=len(result),
            attacked=attacked,
            asr=Rate(len(hits), attacked),
            asr_at={q: Rate(int((hits <= q).sum()), attacked) for q in at},
            stable=Rate(int(result.stable.sum()), attacked) if result.randomised else None,
            robust=Rate(result.status.count("failed"), len(result) - errors),
            median_queries=statistics.median(spent) if spent else math.nan,
            mean_queries=statistics.fmean(spent) if spent else math.nan,
            mean_pixels=statistics.fmean(pixels) if pixels else math.nan,
            errors=errors,
            unverified=result.status.count("unverified"),
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN."""

        def number(value: float) -> float | None:
            return None if math.isnan(value) else value

        return {
            "images": self.images,
            "attacked": self.attacked,
            "asr": self.asr.as_dict(),
            "asr_at": {str(q): rate.as_dict() for q, rate in self.asr_at.items()},
            "asr_stable": None if self.stable is None else self.stable.as_dict(),
            "robust_accuracy": self.robust.as_dict(),
            "median_queries": number(self.median_queries),
            "mean_queries": number(self.mean_queries),
            "mean_pixels": number(self.mean_pixels),
            "errors": self.errors,
            "unverified": self.unverified,
        }
