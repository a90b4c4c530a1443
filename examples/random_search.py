"""Random search: move one pixel at a time, and keep what lowers the loss. A whole attack."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks import SparseAttack
from brusle.attacks.drawing import draw_unused
from brusle.problems import Edits, Problems
from brusle.search import Feedback, Search

START, PLACE, PAINT = (
    rng.purpose(f"random search: {what}") for what in ("start", "place", "paint")
)


@dataclass(frozen=True)
class RandomSearch(SparseAttack):
    """Random pixels in random corner colours, of which one moves in every round."""

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Draw the first pixels; random numbers depend on the problem, not on the batch."""
        n, (c, h, w) = len(problems), problems.shape
        stream = rng.streams(seed, problems.ids, restart)
        index = rng.winners(rng.bits(stream, 0, START, h * w), self.pixels)
        colour = rng.bits(stream, 0, PAINT, self.pixels * c).view(n, self.pixels, c) & 1
        best = Edits(index, colour.float())
        loss = torch.full((n,), torch.inf, dtype=torch.float64, device=index.device)
        return _RandomSearch(h * w, stream, best, best, loss)


@dataclass
class _RandomSearch(Search):
    places: int
    stream: Tensor  # (n,), as all tensors one entry per problem
    best: Edits
    candidate: Edits
    loss: Tensor  # (n,) of the best

    def ask(self, step: Tensor) -> Edits:
        """The best with one pixel elsewhere; at first, the best as it was drawn."""
        n, k, c = self.best.colour.shape
        slot = (step % k)[:, None]
        u = rng.uniform(rng.bits(self.stream, step, PLACE, 1))
        index = self.best.index.scatter(1, slot, draw_unused(self.best.index, u, self.places))
        paint = (rng.bits(self.stream, step, PAINT, c) & 1).float().view(n, 1, c)
        colour = self.best.colour.scatter(1, slot[:, :, None].expand(n, 1, c), paint)
        self.candidate = Edits(index, colour).where(step > 0, self.best)
        return self.candidate

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Keep it if it is better."""
        better = feedback.loss < self.loss
        self.best = self.candidate.where(better, self.best)
        self.loss = torch.where(better, feedback.loss, self.loss)
