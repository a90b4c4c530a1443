"""Draws without replacement, one row for each problem, in the forms that attacks need.

Rows are treated separately and ties are broken by position, so that a row's draw depends on its own
random numbers only. See also `brusle.rng.winners`, which draws by an exponential race.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from brusle import rng


def draw_in_turn(weight: Tensor, u: Tensor, group: int = 1) -> Tensor:
    """Draw positions by weight, one after the other, without replacement.

    Each draw takes two uniform numbers: one for a block of about the square root of all
    positions, one for the position in the block. That costs far less than a random number for
    every position, as long as few are drawn. Sums are in float64, where a number below 1 times a
    total stays below the total: a weight of 0 is never drawn, unless nothing else is left.

    Args:
        weight: ``(n, positions)``, not negative.
        u: ``(n, 2 * draws)`` float64 random numbers in (0, 1).
        group: so many neighbouring positions are taken out together (the colours of a pixel).

    Returns:
        ``(n, draws)`` positions.
    """
    n, positions = weight.shape
    size = group * math.ceil(math.sqrt(positions) / group)
    left = weight.new_zeros(n, -(-positions // size) * size)
    left[:, :positions] = weight
    left = left.view(n, -1, size)
    totals = left.sum(2, dtype=torch.float64)
    rows = torch.arange(n, device=weight.device)
    together = torch.arange(group, device=weight.device)
    drawn = []
    for turn in range(u.shape[1] // 2):
        block = _at_share(totals, u[:, 2 * turn])
        inside = left[rows, block]
        place = _at_share(inside, u[:, 2 * turn + 1])
        drawn.append(block * size + place)
        inside.scatter_(1, (place // group * group)[:, None] + together, 0.0)
        left[rows, block] = inside
        totals[rows, block] = inside.sum(1, dtype=torch.float64)
    return torch.stack(drawn, 1)


def draw_unused(taken: Tensor, u: Tensor, positions: int) -> Tensor:
    """Draw positions that are not ``taken``, uniformly, one after the other, without replacement.

    The free position of rank r is r plus the number of taken ones before it; and a taken position
    is before it if that position minus its own rank among the taken is at most r. So one draw
    costs a sort of the taken ones, and not a random number for every position.

    Args:
        taken: ``(n, k)`` positions, all different in a row.
        u: ``(n, draws)`` random numbers in (0, 1).
        positions: how many positions there are.

    Returns:
        ``(n, draws)`` positions.
    """
    drawn: list[Tensor] = []
    for turn in range(u.shape[1]):
        free = positions - taken.shape[1]
        rank = (u[:, turn : turn + 1] * free).long().clamp_max(free - 1)
        gaps = taken.sort(1).values - torch.arange(taken.shape[1], device=taken.device)
        place = rank + torch.searchsorted(gaps, rank, right=True)
        drawn.append(place)
        taken = torch.cat([taken, place], 1)
    return torch.cat(drawn, 1)


def draw_subset(among: Tensor, count: Tensor, numbers: Tensor) -> Tensor:
    """Draw ``(n,)`` ``count`` of the set positions of each row, or all if there are fewer.

    Args:
        among: ``(n, positions)`` bool.
        count: ``(n,)``.
        numbers: ``(n, positions)`` random bits; the smallest win.

    Returns:
        ``(n, positions)`` bool.
    """
    most = min(int(count.max()), among.shape[1])
    race = numbers.long() + ((~among).long() << 31)
    drawn = torch.arange(most, device=count.device) < count[:, None]
    return torch.zeros_like(among).scatter(1, rng.winners(race, most), drawn) & among


def _at_share(weight: Tensor, u: Tensor) -> Tensor:
    """``(n,)``: the position at which the cumulated weights pass the share ``u`` of the total."""
    cumulated = weight.cumsum(1, dtype=torch.float64)
    mark = u * cumulated[:, -1]
    place = torch.searchsorted(cumulated, mark[:, None], right=True)[:, 0]
    return place.clamp_max(weight.shape[1] - 1)
