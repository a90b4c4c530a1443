"""The evolution of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.one_pixel.evolution import Evolution
from brusle.problems import Candidates, Edits, to_levels
from brusle.rng import Purpose


@dataclass
class Paper(Evolution):
    """Coordinates are real numbers in [0, h) and [0, w); colours are kept on 8-bit levels."""

    def random_members(self, step: Tensor) -> Tensor:
        """One member each, as the paper initialises them."""
        n, k, genes = self.candidate.shape
        u = rng.uniform(rng.bits(self.stream, step, Purpose.ONE_PIXEL_MEMBER, k * genes)).view(
            n, k, genes
        )
        colour = (128 + 127 * torch.special.ndtri(u[:, :, 2:])) / 255
        return torch.cat([self._coordinates(u[:, :, :2]), to_levels(colour)], 2)

    def _coordinates(self, u: Tensor) -> Tensor:
        """Rows and columns from uniform numbers; in float32 a number near 1 must not become h."""
        last = (self.size.values - 2.0**-10).float()
        return torch.minimum((u * self.size.values).float(), last)

    def rivals(self, step: Tensor) -> Tensor:
        """Mix three others than the one that is challenged."""
        one, two, three = self.others(step, 3)
        # no fused operation: its last bit may depend on the place in the batch
        mixed = one + (two - three) * self.settings.f
        place = mixed[:, :, :2]
        outside = (place < 0) | (place >= self.size.values)
        numbers = rng.bits(self.stream, step, Purpose.ONE_PIXEL_AGAIN, place[0].numel())
        again = self._coordinates(rng.uniform(numbers).view(place.shape))
        place = torch.where(outside, again, place)
        rival = torch.cat([place, to_levels(mixed[:, :, 2:])], 2)
        if self.settings.crossover == 1:
            return rival
        numbers = rng.bits(self.stream, step, Purpose.ONE_PIXEL_CROSSOVER, rival[0].numel())
        keep = rng.uniform(numbers).view(rival.shape) >= self.settings.crossover
        rows = torch.arange(len(rival), device=rival.device)
        return torch.where(keep, self.population[rows, self.age % self.members], rival)

    def paint(self, members: Tensor) -> Edits:
        h, w = self.size.values
        row, column = members[:, :, :2].long().unbind(2)
        index, order = make_room(row * w + column, int(h * w))
        colour = members[:, :, 2:]
        return Edits(index, colour.gather(1, order[:, :, None].expand_as(colour)))

    def close(self, rows: Tensor) -> None:
        """Let the survivors be the population; draw another one where all are alike."""
        super().close(rows)
        low, high = self.loss[rows].aminmax(dim=1)
        self.age[rows] = torch.where(low < high, self.age[rows], 0)

    def resume(self, edits: Edits) -> Candidates:
        """Take the edits as the first member."""
        w = self.size.values[1]
        place = torch.stack([edits.index // w, edits.index % w], 2) + 0.5
        self.candidate = torch.cat([place, edits.colour], 2)
        return edits


def make_room(index: Tensor, pixels: int) -> tuple[Tensor, Tensor]:
    """Move positions that occur twice to free ones nearby.

    In reading order, each position becomes the next one that those before it have left free; at
    the end of the image, where there is none, they are pushed back instead. Positions that are
    all different stay as they are.

    Args:
        index: ``(n, k)`` positions below ``pixels``.
        pixels: how many there are, at least k.

    Returns:
        ``(n, k)`` increasing positions, and where in ``index`` each of them was.
    """
    k = index.shape[1]
    if k == 1:
        return index, torch.zeros_like(index)
    sorted_index, order = index.sort(dim=1, stable=True)
    steps = torch.arange(k, device=index.device)
    # q_i = max(p_i, q_(i-1) + 1), so q_i - i is the running maximum of p_i - i
    free = (sorted_index - steps).cummax(1).values + steps
    return torch.minimum(free, pixels - k + steps), order
