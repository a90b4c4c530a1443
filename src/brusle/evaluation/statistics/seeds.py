"""How much numbers vary with the seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from brusle.errors import InputError
from brusle.evaluation.record import Row


@dataclass(frozen=True)
class Spread:
    """A metric over several seeds; ``std`` is the sample standard deviation (NaN of one seed)."""

    min: float
    mean: float
    max: float
    std: float
    seeds: int


def over_seeds(runs: Sequence[Sequence[Row]], metric: Callable[[Sequence[Row]], float]) -> Spread:
    """How much a metric varies with the seed.

    Args:
        runs: rows of each seed, on the same problems.
        metric: a number from rows, as in ``lambda rows: success_rate(rows, 500).value``.
    """
    if not runs:
        raise InputError("there are no runs to take a spread of: give rows of one seed or more")
    if len({frozenset(row.problem for row in rows) for rows in runs}) > 1:
        sizes = ", ".join(str(len(rows)) for rows in runs)
        raise InputError(
            f"the seeds were run on different problems ({sizes} rows): finish all of them, with "
            f"the same pairs"
        )
    return spread([metric(rows) for rows in runs])


def spread(values: Sequence[float]) -> Spread:
    """How much one value for each seed varies."""
    found = np.array(values, dtype=np.float64)
    std = float(found.std(ddof=1)) if len(found) > 1 else math.nan
    return Spread(float(found.min()), float(found.mean()), float(found.max()), std, len(found))
