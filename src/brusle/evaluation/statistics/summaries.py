"""The numbers of one setting, together: one line of a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brusle.evaluation.record import Row
from brusle.evaluation.statistics.costs import (
    Cost,
    area_under_curve,
    cost,
    cost_of,
    success_cost,
)
from brusle.evaluation.statistics.counting import (
    attacked,
    robust_accuracy,
    stable_rate,
    success_rate,
    won,
)
from brusle.evaluation.statistics.pixels import PixelsNeeded
from brusle.evaluation.statistics.rates import Rate, or_none


@dataclass(frozen=True)
class Summary:
    """One line of a table.

    Attributes:
        images: rows; an image with several targets has several.
        attacked: those that were classified correctly and without error.
        asr: successes over attacked (the paper's attack success rate).
        asr_at: the same within fewer queries.
        stable: stable successes over attacked; None unless the victim is randomised.
        robust: images that are classified correctly to the end, over all without error.
        cost: queries of attacked images, a failure counting as the limit.
        success_cost: queries of successes.
        area: area under the curve of success rates, see `area_under_curve`.
        mean_pixels: changed pixels of the successes; NaN without any.
        errors: images on which the victim failed.
        unverified: reported successes that did not pass the check.
        needed: pixels needed, of a search for the fewest; None of other attacks. Such a search
            spends all its queries: ``asr_at`` is empty then, and costs and area are NaN.
    """

    images: int
    attacked: int
    asr: Rate
    asr_at: dict[int, Rate]
    stable: Rate | None
    robust: Rate
    cost: Cost
    success_cost: Cost
    area: float
    mean_pixels: float
    errors: int
    unverified: int
    needed: PixelsNeeded | None = None

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        limit: int,
        at: Iterable[int] = (),
        randomised: bool = False,
        fewest: int | None = None,
    ) -> Summary:
        """Summarise rows.

        Args:
            rows: rows of a setting.
            limit: query limit.
            at: numbers of queries to give the success rate at.
            randomised: whether the victim is.
            fewest: pixel limit of a search for the fewest pixels; None of other attacks.
        """
        curve = fewest is None  # over queries
        statuses = Counter(row.status for row in rows)
        pixels = [row.pixels for row in rows if won(row, limit)]
        return cls(
            images=len(rows),
            attacked=len(attacked(rows)),
            asr=success_rate(rows, limit),
            asr_at={q: success_rate(rows, q) for q in at if curve},
            stable=stable_rate(rows, limit) if randomised else None,
            robust=robust_accuracy(rows, limit),
            cost=cost(rows, limit) if curve else cost_of([]),
            success_cost=success_cost(rows, limit) if curve else cost_of([]),
            area=area_under_curve(rows, limit) if curve else math.nan,
            mean_pixels=float(np.mean(pixels)) if pixels else math.nan,
            errors=statuses["error"],
            unverified=statuses["unverified"],
            needed=None if fewest is None else PixelsNeeded.of(rows, fewest),
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN."""
        return {
            "images": self.images,
            "attacked": self.attacked,
            "asr": self.asr.as_dict(),
            "asr_at": {str(q): rate.as_dict() for q, rate in self.asr_at.items()},
            "asr_stable": None if self.stable is None else self.stable.as_dict(),
            "robust_accuracy": self.robust.as_dict(),
            "median_queries": or_none(self.cost.median),
            "mean_queries": or_none(self.cost.mean),
            "median_queries_of_successes": or_none(self.success_cost.median),
            "mean_queries_of_successes": or_none(self.success_cost.mean),
            "area_under_curve": or_none(self.area),
            "mean_pixels": or_none(self.mean_pixels),
            "errors": self.errors,
            "unverified": self.unverified,
            "pixels_needed": None if self.needed is None else self.needed.as_dict(),
        }


def by_label(rows: Sequence[Row], limit: int, fewest: int | None = None) -> dict[int, Summary]:
    """A summary of each true class; arguments as for `Summary.of`."""
    return _grouped(rows, limit, fewest, lambda row: row.label)


def by_target(rows: Sequence[Row], limit: int, fewest: int | None = None) -> dict[int, Summary]:
    """A summary of each target class; untargeted attacks have none."""
    return _grouped(rows, limit, fewest, lambda row: row.target)


def _grouped(
    rows: Sequence[Row], limit: int, fewest: int | None, key: Callable[[Row], int | None]
) -> dict[int, Summary]:
    groups: dict[int, list[Row]] = {}
    for row in rows:
        value = key(row)
        if value is not None:
            groups.setdefault(value, []).append(row)
    return {value: Summary.of(groups[value], limit, fewest=fewest) for value in sorted(groups)}
