"""How much a rate has fallen between two measurements of the same images.

Of ``count`` images, some were lost (a hit before and none now), some gained, and most are ties. The
drop is the share that was lost minus the share that was gained.

For a number of images that was fixed beforehand, the test is McNemar's, exact and with a margin. Of
the images that differ, ``1/2 + drop / (2 * share)`` were lost, where ``share`` is the share of all
images that differs. So the number that was lost is binomial, and a tail says how likely so few are
if the drop is what is to be refused. Nobody knows the share, unless the margin is 0 and it does not
matter; the tail is taken at a bound of it, and what that may err is added (Berger and Boos, JASA
1994).

For images that were looked at one after the other, the evidence is what somebody has won who bets
on each image that the drop is smaller (Waudby-Smith and Ramdas, JRSS B 2024): ``1 + stake * (drop -
lost + gained)`` multiplied over the images, averaged over stakes. No bet is expected to win if the
drop is as large, so the same holds as in `brusle.evaluation.statistics.sequential`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from brusle.evaluation.statistics.binomial import at_most, lower_bound, upper_bound

SPENT = 0.1  # of alpha, on the bound of the share that differs
_STAKES = (np.arange(64) + 0.5) / 64  # in units of the largest that can be lost
_STEPS = 40


@dataclass(frozen=True)
class Pairs:
    """Images that were measured twice.

    Attributes:
        lost: hits before and none now.
        gained: none before and hits now.
        count: all, with those that stayed as they were.
    """

    lost: int
    gained: int
    count: int

    @property
    def drop(self) -> float:
        """Share lost minus share gained."""
        return (self.lost - self.gained) / self.count

    @property
    def reversed(self) -> Pairs:
        """The same with before and after changed."""
        return Pairs(self.gained, self.lost, self.count)


Small = Callable[[Pairs, float, float], bool]  # whether the drop is at most so much, with alpha


def drop_is_at_most(pairs: Pairs, most: float, alpha: float) -> bool:
    """Whether the drop is surely at most ``most``; wrong with a probability of ``alpha`` or less.

    The number of images must have been fixed beforehand.
    """
    if not pairs.count:
        return False
    differ, spent = pairs.lost + pairs.gained, SPENT * alpha
    bound = upper_bound if most > 0 else lower_bound
    share = bound(differ, pairs.count, spent)  # where so few lost ones are the likeliest
    if share < most:
        return True  # not so many images differ
    if share <= -most:
        return False
    lost = 0.5 + most / (2 * share) if most else 0.5
    return at_most(pairs.lost, differ, lost) <= alpha - spent


def drop_is_always_at_most(pairs: Pairs, most: float, alpha: float) -> bool:
    """The same of images that were looked at one after the other, for all times at once."""
    stakes = _STAKES / (1 - most)
    won = [(pairs.gained, 1 + most), (pairs.count - pairs.lost - pairs.gained, most)]
    won.append((pairs.lost, most - 1))
    logs = sum(times * np.log1p(stakes * gain) for times, gain in won)
    return float(np.logaddexp.reduce(logs)) - math.log(len(stakes)) >= -math.log(alpha)


def drop_bounds(
    pairs: Pairs, alphas: tuple[float, float], small: Small = drop_is_at_most
) -> tuple[float, float]:
    """Lower and upper bound of the drop, each with its ``alpha``."""
    low, high = alphas
    return -_smallest(pairs.reversed, low, small), _smallest(pairs, high, small)


def _smallest(pairs: Pairs, alpha: float, small: Small) -> float:
    """The smallest drop that it is surely at most."""
    low, high = -1.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if small(pairs, middle, alpha) else (middle, high)
    return high
