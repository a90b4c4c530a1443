"""The trust region of BayesOpt: how far from the best candidate the next one may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brusle.problems import to_levels
from brusle.rows import Rows

# as in the authors' code: radius in positions, side of the box of colours
RADIUS, MOST_RADIUS, SIDE, MOST_SIDE, LEAST_SIDE = 20.0, 30.0, 0.8, 1.6, 2.0**-7
FACTOR, SUCCESSES = 1.5, 3


@dataclass
class Region(Rows):
    """Trust regions; all ``(n,)``.

    Attributes:
        radius: most positions that may differ from those of the best candidate.
        side: of the box of colours around those of the best candidate.
        wins: successes in a row.
        misses: failures in a row.
    """

    radius: Tensor
    side: Tensor
    wins: Tensor
    misses: Tensor

    @classmethod
    def first(cls, n: int, pixels: int, device: torch.device) -> Region:
        """The regions that a search begins with."""
        counts = torch.zeros(n, dtype=torch.int64, device=device)
        radius = torch.full((n,), min(RADIUS, pixels), dtype=torch.float64, device=device)
        return cls(radius, torch.full_like(radius, SIDE), counts, counts.clone())

    def update(self, better: Tensor, failures: int, pixels: int) -> Tensor:
        """Count successes and failures; grow, shrink, or return True where nothing is left."""
        self.wins = torch.where(better, self.wins + 1, 0)
        self.misses = torch.where(better, 0, self.misses + 1)
        grow, shrink = self.wins == SUCCESSES, self.misses == failures

        def scaled(size: Tensor) -> Tensor:
            return torch.where(grow, size * FACTOR, torch.where(shrink, size / FACTOR, size))

        self.radius = scaled(self.radius).clamp_max(min(MOST_RADIUS, pixels))
        self.side = scaled(self.side).clamp_max(MOST_SIDE)
        self.wins = torch.where(grow, 0, self.wins)
        self.misses = torch.where(shrink, 0, self.misses)
        return (self.radius < 1) | (self.side < LEAST_SIDE)


@dataclass(frozen=True)
class Neighbourhood:
    """A trust region around one candidate, and how points in it are drawn.

    Attributes:
        index: ``(k,)`` positions of the centre.
        colour: ``(k, c)`` its colours.
        radius: most positions that may differ.
        side: of the box of colours.
        grid: places of new positions.
    """

    index: Tensor
    colour: Tensor
    radius: int
    side: float
    grid: Tensor

    def vary(self, index: Tensor, colour: Tensor, most: int, u: Tensor) -> tuple[Tensor, Tensor]:
        """Change one to ``most`` edits of a point without leaving the region.

        Each of them gets a new colour, and every other one a new position, if that is free.

        Args:
            index: ``(k,)`` positions of the point.
            colour: ``(k, c)`` its colours.
            most: most edits to change.
            u: ``(m, 1 + (2 + c) k)`` uniform numbers.

        Returns:
            ``(m, k)`` positions and ``(m, k, c)`` colours on 8-bit levels.
        """
        (k, c), m = colour.shape, len(u)
        number, race, where, paint = torch.split(u, [1, k, k, c * k], 1)
        count = (number * most).long()  # one less than the edits to change
        changed = race <= race.sort(1).values.gather(1, count)
        where = (where * 2 * len(self.grid)).long()
        place, move = self.grid[where // 2], changed & (where % 2 == 0)
        move &= ~torch.isin(place, index)
        if most > 1:
            move &= ~_seen_before(place)
        new_index = torch.where(move, place, index)
        far = (new_index != self.index).sum(1, keepdim=True) > self.radius
        # beyond the box and then cut off: most of the useful colours are on the border
        box = self.colour + self.side * (paint.view(m, k, c) - 0.5)
        new_colour = torch.where(changed[:, :, None], to_levels(box).double(), colour)
        return torch.where(far, index, new_index), new_colour


def _seen_before(place: Tensor) -> Tensor:
    """Which entries occur more than once in their row, all but one of them."""
    ordered, order = place.sort(dim=1, stable=True)
    again = torch.zeros_like(place, dtype=torch.bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(again).scatter(1, order, again)


def grid(h: int, w: int, pixels: int, places: int) -> Tensor:
    """Positions on a grid: at most ``places``, unless that leaves fewer than twice ``pixels``."""

    def count(spacing: int) -> int:
        return math.ceil(h / spacing) * math.ceil(w / spacing)

    spacing = 1
    while count(spacing) > places and count(spacing + 1) >= 2 * pixels:
        spacing += 1
    row, column = ((torch.arange(0, s, spacing) + spacing // 2).clamp_max(s - 1) for s in (h, w))
    return (row[:, None] * w + column).flatten()
