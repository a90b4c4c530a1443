"""What PixelBandit remembers: the last observations.

An observation is a change of scores, and the weighted elements that it comes from. Observations lie
in slots; when all are taken, a new one replaces the oldest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brusle.attacks.pixel_bandit.elements import Elements
from brusle.attacks.pixel_bandit.log_odds import CLASSES
from brusle.attacks.pixel_bandit.prior import Prior
from brusle.rows import Rows

PART = 16  # elements that are summed at once


@dataclass
class Memory(Rows):
    """Observations of some elements each; in an empty slot, those of no colour and size 0."""

    prior: Prior
    elements: Elements  # (n, slots, m)
    index: Tensor  # (n, slots, m): which of all effects are theirs, see `Prior.index`
    size: Tensor  # (n, slots, m): their weights times their scales
    z: Tensor  # (n, slots, classes): change of the scores

    @classmethod
    def empty(cls, prior: Prior, n: int, slots: int, m: int) -> Memory:
        """For so many problems, observations, and elements in each."""

        def zeros(dtype: torch.dtype, last: int) -> Tensor:
            return torch.zeros(n, slots, last, dtype=dtype, device=prior.centre.device)

        elements = Elements(zeros(torch.int64, m), zeros(torch.int64, m) - 1)
        size, z = zeros(torch.float32, m), zeros(torch.float64, CLASSES)
        return cls(prior, elements, zeros(torch.int64, m), size, z)

    @property
    def slots(self) -> int:
        return self.z.shape[1]

    def put(self, slot: Tensor, elements: Elements, size: Tensor, z: Tensor) -> None:
        """Remember one more observation of each problem, in its ``slot``."""
        rows = torch.arange(len(slot), device=slot.device)
        self.elements.pixel[rows, slot] = elements.pixel
        self.elements.colour[rows, slot] = elements.colour
        self.index[rows, slot] = self.prior.index(elements)
        self.size[rows, slot] = size
        self.z[rows, slot] = z

    def narrowed(self, m: int) -> Memory:
        """The first ``m`` elements of each observation, where no other has a weight.

        In whole parts, see `total`; nothing is copied.
        """
        width = min(self.size.shape[2], max(1, -(-m // PART)) * PART)
        first = (slice(None), slice(None), slice(width))
        elements = Elements(self.elements.pixel[first], self.elements.colour[first])
        return replace(self, elements=elements, index=self.index[first], size=self.size[first])

    def sums(self, effects: Tensor) -> Tensor:
        """``(n, slots)``: effects, ``(n, k, cells)``, summed over the elements of observations."""
        found = effects.flatten(1).gather(1, self.index.flatten(1)).view_as(self.size)
        return total(found * self.size)

    def covariance(self, elements: Elements, size: Tensor) -> Tensor:
        """``(n, slots)``: of the observations with a sum of effects of other ``elements``."""
        return self.sums(self.prior.covariance(self.prior.index(elements), size))

    def effects(self, weight: Tensor) -> Tensor:
        """``(n, k, cells)``: what observations of such weights, ``(n, slots)``, say of effects."""
        size = weight[:, :, None] * self.size
        return self.prior.covariance(self.index.flatten(1), size.flatten(1))

    def places(self, elements: Elements) -> Tensor:
        """``(n, slots, m)``: where in a list of elements each remembered one is; -1 if nowhere.

        Args:
            elements: no pixel twice, but for one past the last, which is not to be found.
        """
        n, m = elements.pixel.shape
        shape, device = (n, self.prior.pixels + 1), elements.pixel.device
        place = torch.full(shape, -1, dtype=torch.int32, device=device)
        place.scatter_(1, elements.pixel, torch.arange(m, device=device).int().expand(n, -1))
        found = place.gather(1, self.elements.pixel.reshape(n, -1)).long()
        colour = elements.colour.gather(1, found.clamp_min(0))
        same = colour == self.elements.colour.reshape(n, -1)
        return torch.where((found >= 0) & same, found, -1).view_as(self.index)


def total(values: Tensor) -> Tensor:
    """``(n, slots)``: the sum of ``(n, slots, m)``.

    It is taken in parts of one size, one after another. More zeros would else change its last
    digits, and how many there are depends on the batch.
    """
    sums = values[:, :, :PART].sum(2)
    for at in range(PART, values.shape[2], PART):
        sums = sums + values[:, :, at : at + PART].sum(2)
    return sums
