"""What PixelBandit counts in: elements, and random numbers for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brusle import rng
from brusle.rng import Purpose
from brusle.rows import Rows


@dataclass
class Elements(Rows):
    """Pixels, each with the colour that it gets. A mask is B of them, no pixel twice."""

    pixel: Tensor  # (n, m)
    colour: Tensor  # (n, m): which corner of the colour cube

    def gather(self, at: Tensor) -> Elements:
        """``(n, m)``: those at places ``at``."""
        return Elements(self.pixel.gather(1, at), self.colour.gather(1, at))

    def clone(self) -> Elements:
        return Elements(self.pixel.clone(), self.colour.clone())

    def exchange(self, which: Tensor, others: Elements) -> None:
        """Let ``others``, ``(n, first)``, take the places of the first elements, if ``which``."""
        first = which.shape[1]
        self.pixel[:, :first] = torch.where(which, others.pixel, self.pixel[:, :first])
        self.colour[:, :first] = torch.where(which, others.colour, self.colour[:, :first])


@dataclass(frozen=True)
class Chance:
    """The random numbers of one query of each problem."""

    stream: Tensor  # (n,)
    step: Tensor  # (n,)

    def bits(self, purpose: Purpose, count: int) -> Tensor:
        """``(n, count)`` integers, see `rng.bits`."""
        return rng.bits(self.stream, self.step, purpose, count)

    def numbers(self, purpose: Purpose, count: int) -> Tensor:
        """``(n, count)`` independent numbers of mean 0 and variance 1.

        They are uniform: sums of many are normal, and only sums are used.
        """
        numbers = rng.uniform(self.bits(purpose, count))
        return (numbers.float() - 0.5) * math.sqrt(12)
