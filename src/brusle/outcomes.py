"""What became of an attack on one image, and what each outcome counts as (docs/metrics.md).

The attack success rate is taken over the images that the victim classifies correctly (the
convention of the papers), robust accuracy over all images (RobustBench's). Errors are in no
denominator. Unverified results are in all denominators and in no numerator. Nobody else decides
what a status counts as.
"""

from __future__ import annotations

import math
from typing import Literal

Status = Literal["success", "failed", "skipped", "unverified", "error"]

Success = Literal["top1", "absent", "new"]  # what counts as one, see `brusle.goals.Goal`

HIT: Status = "success"  # the numerator of the attack success rate
ATTACKED: tuple[Status, ...] = ("success", "failed", "unverified")  # its denominator
ROBUST: Status = "failed"  # the numerator of robust accuracy
ANSWERED: tuple[Status, ...] = (*ATTACKED, "skipped")  # its denominator
CLAIMED: tuple[Status, ...] = ("success", "unverified")  # the attack said that it had succeeded
FAULTY: tuple[Status, ...] = ("error", "unverified")  # there is a reason to read


def share(hits: int, count: int) -> float:
    """``hits / count``; NaN of nothing."""
    return hits / count if count else math.nan
