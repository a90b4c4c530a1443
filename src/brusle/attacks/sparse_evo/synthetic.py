"""SparseEvo on a synthetic image: all masks have exactly the budget's number of pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks import palettes
from brusle.attacks.drawing import draw_subset
from brusle.attacks.palettes import SyntheticImage
from brusle.attacks.sparse_evo.population import Population
from brusle.problems import Candidates, Edits, Problems
from brusle.rng import Purpose
from brusle.search import Feedback

if TYPE_CHECKING:
    from brusle.attacks.sparse_evo import SparseEvo


@dataclass
class Synthetic(Population):
    """Masks of B pixels that show a synthetic image; the fitness is the loss."""

    synthetic: SyntheticImage

    @classmethod
    def start(cls, settings: SparseEvo, problems: Problems, seed: int, restart: int) -> Synthetic:
        """Draw the synthetic image; the population is empty."""
        n, (_, h, w) = len(problems), problems.shape
        stream = rng.streams(seed, problems.ids, restart)
        masks = torch.zeros(n, settings.population, h * w, dtype=torch.bool, device=stream.device)
        return cls(
            settings=settings,
            rate=settings.rate(problems.targets is not None, h * w),
            stream=stream,
            masks=masks,
            fitness=masks[:, :, 0].double() + torch.inf,
            candidate=masks[:, 0].clone(),
            synthetic=palettes.draw("binary", problems, stream),
        )

    def initial(self, step: Tensor) -> Tensor:
        """``(n,)``: the population is still being filled."""
        return step < self.settings.population

    def ask(self, step: Tensor) -> Edits:
        """A random mask or a child, as far as each row is."""
        first, b = self.initial(step), self.settings.pixels
        child = self._child(step)
        if bool(first.any()):
            bits = self.bits(step, Purpose.SPARSE_EVO_FIRST)
            drawn = draw_subset(torch.ones_like(child), torch.full_like(step, b), bits)
            child = torch.where(first[:, None], drawn, child)
        self.candidate = child
        return self.synthetic.edits(child.nonzero()[:, 1].view(len(child), b))

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Fill the population, or replace its worst member."""
        member = torch.where(self.initial(step), step, self.worst())
        fitter = feedback.loss < self.fitness.gather(1, member[:, None])[:, 0]
        self.let_in(member, feedback.loss, fitter)
        # where the population is complete, members that were not asked are copies (`resume`)
        copies = self.fitness.isinf() & (step == self.settings.population - 1)[:, None]
        self.fitness = torch.where(copies, feedback.loss[:, None], self.fitness)

    def resume(self, edits: Edits) -> Candidates:
        """Take the edits as every member, and their colours into the synthetic image."""
        pixels = self.synthetic.take_in(edits)
        self.candidate = torch.zeros_like(self.candidate).scatter(1, pixels, True)
        self.masks = self.candidate[:, None].repeat(1, self.settings.population, 1)
        return edits

    def _child(self, step: Tensor) -> Tensor:
        """Exchange pixels of the best mask for pixels of the cross, then move some anywhere."""
        best, cross = self.parents(step)
        u = rng.uniform(self.bits(step, Purpose.SPARSE_EVO_LEAVE))
        mine, theirs = best & ~cross & (u >= self.settings.crossover_rate), cross & ~best
        first, second = (
            self.bits(step, Purpose.SPARSE_EVO_FIRST),
            self.bits(step, Purpose.SPARSE_EVO_SECOND),
        )
        child = _exchange(best, mine, theirs, mine.sum(1), first)
        moves = torch.full_like(step, max(int(self.settings.pixels * self.rate), 1))
        return _exchange(child, child, ~child, moves, second)


def _exchange(mask: Tensor, out: Tensor, into: Tensor, count: Tensor, numbers: Tensor) -> Tensor:
    """Replace up to ``count`` pixels ``out`` of a mask by as many pixels ``into``."""
    count = torch.minimum(count, torch.minimum(out.sum(1), into.sum(1)))
    return mask & ~draw_subset(out, count, numbers) | draw_subset(into, count, numbers)
