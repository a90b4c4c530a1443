"""How many of the selected pixels change in a round: the changing rate lambda over the queries.

All schedules are functions of q, the number of queries spent before the round.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

Schedule = Literal["power-step", "step-decay", "cosine", "constant"]
SCHEDULES: tuple[Schedule, ...] = ("power-step", "step-decay", "cosine", "constant")


def changing_rate(
    schedule: Schedule, q: int, limit: int, lambda_0: float, m1: float, m2: float
) -> float:
    """The rate lambda for a round after ``q`` queries.

    ``"power-step"`` is the authors' code, lambda_0 ((q+1)^-m1 + m2^(q+1)) / 2. The paper prints
    lambda_0 (t^m1 + m2^t), which grows; a minus sign is missing there, and the division by two
    makes lambda_0 the rate at the start. The other three are the paper's ablation.
    """
    if schedule == "power-step":
        return lambda_0 * (math.pow(q + 1, -m1) + math.pow(m2, q + 1)) / 2
    if schedule == "step-decay":
        return lambda_0 * math.pow(m2, q + 1)
    if schedule == "cosine":
        return lambda_0 * (1 + math.cos(math.pi * q / limit)) / 2
    return lambda_0


@lru_cache(maxsize=32)
def removals(
    schedule: Schedule, limit: int, pixels: int, lambda_0: float, m1: float, m2: float
) -> tuple[int, ...]:
    """How many pixels to replace after 0, 1, ..., ``limit`` queries: at least 1, at most all.

    The paper keeps b = ceil((1 - lambda) B) pixels, which lets small budgets stall with no pixel
    to replace; the authors' code replaces floor(lambda B), at least 1, as we do.
    """
    rates = [changing_rate(schedule, q, limit, lambda_0, m1, m2) for q in range(limit + 1)]
    return tuple(min(pixels, max(1, math.floor(rate * pixels))) for rate in rates)
