"""SparseEvo as its authors wrote it: from a starting image towards the original.

The decision-based attack and the variant whose fitness is the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.drawing import draw_subset
from brusle.attacks.sparse_evo.population import Population
from brusle.problems import Dense, Problems, flatten_pixels
from brusle.rng import Purpose
from brusle.search import Feedback

if TYPE_CHECKING:
    from brusle.attacks.sparse_evo import SparseEvo

_PATIENCE = 10  # refused children in a row, for each pixel of the best mask


@dataclass
class Shrinking(Population):
    """Masks that show the starting image; their pixels are given back to the original."""

    original: Tensor  # (n, h * w, c)
    start_image: Tensor  # (n, h * w, c)
    whole: Tensor  # (n, h * w) bool: where the two differ
    cost: Tensor  # (n, h * w) whole numbers: their squared distance
    member: Tensor  # (n,) which first mask is being drawn; beyond the last, evolution
    flips: Tensor  # (n,) how many pixels it gives back
    refused: Tensor  # (n,) children in a row
    left: Tensor  # (n,) pixels of the best mask
    most_flips: int

    @classmethod
    def start(cls, settings: SparseEvo, problems: Problems, seed: int, restart: int) -> Shrinking:
        """A population of copies of the starting image."""
        assert problems.starts is not None  # the loop has found them
        _, h, w = problems.shape
        original, start_image = problems.flat_images, flatten_pixels(problems.starts)
        whole = (start_image != original).any(2)
        # whole numbers: their sum does not depend on the order, nor on the batch
        distance = (start_image - original).double().square().sum(2)
        flips = max(round(settings.initial_share * h * w), 1)
        zeros = torch.zeros_like(problems.labels)
        return cls(
            settings=settings,
            rate=settings.rate(problems.targets is not None, h * w),
            stream=rng.streams(seed, problems.ids, restart),
            masks=whole[:, None].repeat(1, settings.population, 1),
            fitness=zeros.double()[:, None].repeat(1, settings.population) + torch.inf,
            candidate=whole.clone(),
            original=original,
            start_image=start_image,
            whole=whole,
            cost=(distance * 2**32).round().long().clamp_min(1),
            member=zeros,
            flips=zeros + flips,
            refused=zeros.clone(),
            left=whole.sum(1),
            most_flips=flips,
        )

    def initial(self, step: Tensor) -> Tensor:
        """``(n,)``: the population is still being filled."""
        return self.member < self.settings.population

    def ask(self, step: Tensor) -> Dense:
        """A first mask or a child, as far as each row is."""
        first = self.initial(step)
        best, cross = self.parents(step)
        self.left = best.sum(1)
        mask = torch.where(first[:, None], self.whole, best & cross)
        mutate = (mask.sum(1) * self.rate).long().clamp_min(1)
        count = torch.where(first, self.flips, mutate)
        back = draw_subset(mask, count, self.bits(step, Purpose.SPARSE_EVO_FIRST))
        self.candidate = mask & ~back
        return Dense(torch.where(self.candidate[:, :, None], self.start_image, self.original))

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Fill the population, or replace its worst member."""
        first, worst = self.initial(step), self.worst()
        fitness = self._fitness(feedback)
        fitter = fitness < self.fitness.gather(1, worst[:, None])[:, 0]
        accepted = torch.where(first, feedback.reached, fitter)
        self.let_in(torch.where(first, self.member, worst), fitness, accepted)

        ready = first & (feedback.reached | (self.flips == 1))
        self.member = self.member + ready.long()
        self.flips = (self.flips - 1).masked_fill(ready | ~first, self.most_flips)
        self.refused = (self.refused + 1).masked_fill(first | accepted, 0)
        self._begin_anew(self.refused >= _PATIENCE * self.left)

    def _fitness(self, feedback: Feedback) -> Tensor:
        """The squared distance to the original, or the loss; infinite if not adversarial."""
        fitness = feedback.loss
        if self.settings.variant == "decision":
            fitness = (self.cost * self.candidate).sum(1).double()
        return fitness.masked_fill(~feedback.reached, torch.inf)

    def _begin_anew(self, stuck: Tensor) -> None:
        """Draw another population where nothing gets fitter."""
        rows = stuck.nonzero()[:, 0]
        self.masks[rows] = self.whole[rows, None]
        self.fitness[rows] = torch.inf
        self.member = self.member.masked_fill(stuck, 0)
        self.refused = self.refused.masked_fill(stuck, 0)
