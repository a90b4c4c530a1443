"""How many of the selected pixels change in a round: the changing rate lambda over the queries.

All schedules are functions of q, the number of queries spent before the round.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

Schedule = Literal["power-step", "printed", "step-decay", "cosine", "constant"]


def changing_rate(
    schedule: Schedule,
    q: int,
    limit: int,
    lambda_0: float,
    m1: float,
    m2: float,
    initial: int = 0,
) -> float:
    """The rate lambda for a round after ``q`` queries.

    * ``"power-step"`` is the authors' code, lambda_0 ((q+1)^-m1 + m2^(q+1)) / 2.
    * ``"printed"`` is what the paper prints, lambda_0 (t^m1 + m2^t) in round t = 1, 2, ... With
      the paper's m1 and m2 it begins near 2 lambda_0 and grows, although the text around it wants
      a decay; at 1, where all pixels change, it is cut off. A minus sign is missing in it, and the
      division by two that makes lambda_0 the rate at the start. It is here to compare with.
    * ``"step-decay"``, ``"cosine"`` and ``"constant"`` are the paper's ablation.

    Args:
        schedule: which of them.
        q: queries spent before the round.
        limit: the query limit T.
        lambda_0: the rate at the start.
        m1: the power.
        m2: the base of the decay.
        initial: queries spent before round 1, for the printed formula, which counts rounds.
    """
    if schedule == "power-step":
        return lambda_0 * (math.pow(q + 1, -m1) + math.pow(m2, q + 1)) / 2
    if schedule == "printed":
        t = max(q - initial, 0) + 1
        return min(1.0, lambda_0 * (math.pow(t, m1) + math.pow(m2, t)))
    if schedule == "step-decay":
        return lambda_0 * math.pow(m2, q + 1)
    if schedule == "cosine":
        return lambda_0 * (1 + math.cos(math.pi * q / limit)) / 2
    return lambda_0


@lru_cache(maxsize=32)
def removals(
    schedule: Schedule,
    limit: int,
    pixels: int,
    lambda_0: float,
    m1: float,
    m2: float,
    initial: int = 0,
) -> tuple[int, ...]:
    """How many pixels to replace after 0, 1, ..., ``limit`` queries: at least 1, at most all.

    The paper keeps b = ceil((1 - lambda) B) pixels, which lets small budgets stall with no pixel
    to replace; the authors' code replaces floor(lambda B), at least 1, as we do.
    """
    options = (limit, lambda_0, m1, m2, initial)
    rates = [changing_rate(schedule, q, *options) for q in range(limit + 1)]
    return tuple(min(pixels, max(1, math.floor(rate * pixels))) for rate in rates)
