"""The residual: what a sum of effects gets wrong about a mask.

Masks that share s of their B elements have residuals of covariance

    0.1 B exp(-(B - s) / (0.6 B))

In a draw they come from random features instead of a Cholesky factor: a product of random signs of
mean mu over the elements of a mask has the covariance mu^(2 (B - s)), which is this one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.pixel_bandit.elements import Chance, Elements
from brusle.attacks.pixel_bandit.memory import Memory
from brusle.rng import Purpose
from brusle.rows import Rows

_SHARE, _REACH = 0.1, 0.6  # its variance and its reach, in pixel budgets
_FEATURES = 128  # signs that it is drawn from


@dataclass
class Residual(Rows):
    """Of the masks that are remembered, in their slots."""

    pixels: int  # B
    colours: int  # that an element may have
    parity: Tensor  # (n, slots, features): products of random signs

    @classmethod
    def empty(cls, memory: Memory, features: int = _FEATURES) -> Residual:
        """No mask is remembered yet."""
        n, slots, b = memory.size.shape
        parity = memory.size.new_zeros(n, slots, features)
        return cls(b, len(memory.prior.colours), parity)

    def covariance(self, shared: Tensor) -> Tensor:
        """Of masks that share so many elements."""
        b = self.pixels
        return _SHARE * b * torch.exp((shared - b).float() / (_REACH * b))

    def put(self, slot: Tensor, mask: Elements) -> None:
        """Remember one more mask of each problem, in its ``slot``."""
        rows = torch.arange(len(slot), device=slot.device)
        self.parity[rows, slot] = self.features(mask)

    def features(self, mask: Elements) -> Tensor:
        """``(n, features)``: products of the random signs of the elements of a mask."""
        elements = mask.pixel * self.colours + mask.colour
        stream, features = rng.streams(0, elements.flatten()), self.parity.shape[2]
        mean = math.exp(-1 / (2 * _REACH * self.pixels))
        bits = rng.bits(stream, 0, Purpose.BANDIT_SIGN, features)
        negative = bits >= int((1 + mean) / 2 * 2**31)
        odd = negative.view(*elements.shape, features).sum(1) % 2
        return 1.0 - 2.0 * odd.float()

    def draw(self, chance: Chance) -> Tensor:
        """``(n, slots)``: residuals of the masks that are remembered, drawn from the prior."""
        features = self.parity.shape[2]
        numbers = chance.numbers(Purpose.BANDIT_RESIDUAL, features)
        share = _SHARE * self.pixels / features
        return math.sqrt(share) * (self.parity @ numbers[:, :, None])[:, :, 0]

    def familiar(self, memory: Memory, mask: Elements, weight: Tensor) -> tuple[Tensor, Tensor]:
        """What it says of elements that were seen before, on average.

        Args:
            memory: of masks.
            mask: one of them.
            weight: ``(n, slots)`` of the mean, see `Posterior.weights`.

        Returns:
            ``(n, B)``: of the elements of the mask. Without one, it is less alike with the masks
            that have it, too.
            ``(n, k, cells)``: of all others.
        """
        n, b = mask.pixel.shape
        k, cells = self.colours, memory.prior.count
        place = memory.places(mask)
        within = place >= 0
        step = math.exp(-1 / (_REACH * b))
        weight = (weight * self.covariance(within.sum(2)))[:, :, None].expand(-1, -1, b)
        less = torch.where(within, (1 - step) * weight, 0.0).view(n, -1)
        own = weight.new_zeros(n, b).scatter_add_(1, place.clamp_min(0).view(n, -1), less)
        more = torch.where(within, 0.0, (1 / step - 1) * weight).view(n, -1)
        others = weight.new_zeros(n, k * cells).scatter_add_(1, memory.index.view(n, -1), more)
        return own, others.view(n, k, cells)
