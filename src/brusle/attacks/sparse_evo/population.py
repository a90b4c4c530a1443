"""What both evolutions share: masks, their fitness, and how two parents are crossed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brusle import rng
from brusle.rng import Purpose
from brusle.search import Search

if TYPE_CHECKING:
    from brusle.attacks.sparse_evo import SparseEvo


@dataclass
class Population(Search):
    """Masks and their fitness, the lower the better."""

    settings: SparseEvo
    rate: float  # of mutation
    stream: Tensor
    masks: Tensor  # (n, members, h * w) bool
    fitness: Tensor  # (n, members)
    candidate: Tensor  # (n, h * w) bool: the mask just asked

    def bits(self, step: Tensor, purpose: Purpose) -> Tensor:
        """A random number for every pixel."""
        return rng.bits(self.stream, step, purpose, self.masks.shape[2])

    def parents(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """The best mask, and a cross of two different others."""
        others = self.settings.population - 1
        a, b = rng.bits(self.stream, step, Purpose.SPARSE_EVO_PARENTS, 2).long().unbind(1)
        a = a % others
        b = (a + 1 + b % (others - 1)) % others
        ranks = torch.stack([torch.zeros_like(a), a + 1, b + 1], 1)
        members = self.fitness.sort(dim=1, stable=True).indices.gather(1, ranks)
        rows = torch.arange(len(a), device=a.device)[:, None]
        best, first, second = self.masks[rows, members].unbind(1)
        u = rng.uniform(self.bits(step, Purpose.SPARSE_EVO_CROSS))
        return best, torch.where(u < self.settings.crossover_rate, first, second)

    def worst(self) -> Tensor:
        """``(n,)``: the member that a fitter child replaces."""
        return self.fitness.sort(dim=1, stable=True).indices[:, -1]

    def let_in(self, member: Tensor, fitness: Tensor, accepted: Tensor) -> None:
        """Let the candidates that are ``accepted`` take the places ``member``."""
        rows = accepted.nonzero()[:, 0]
        self.masks[rows, member[rows]] = self.candidate[rows]
        self.fitness[rows, member[rows]] = fitness[rows]
