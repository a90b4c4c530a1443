"""What both evolutions share: members, their rivals, and which of the two survives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brusle import rng
from brusle.problems import Edits
from brusle.rng import Purpose
from brusle.rows import Shared
from brusle.search import Feedback, Search

if TYPE_CHECKING:
    from brusle.attacks.one_pixel import OnePixel


@dataclass
class Evolution(Search):
    """The state of an evolution. A member is ``(pixels, 2 + c)``: row, column and colour."""

    settings: OnePixel
    members: int
    size: Shared  # height and width
    stream: Tensor
    age: Tensor  # (n,) queries since the population was drawn
    population: Tensor  # (n, members, pixels, 2 + c): this generation
    survivors: Tensor  # the same: the next generation, as far as it is known
    candidate: Tensor  # (n, pixels, 2 + c): the member just asked
    loss: Tensor  # (n, members) of the survivors

    def initial(self, step: Tensor) -> Tensor:
        """``(n,)``: the first generation is drawn at random."""
        return self.age < self.members

    def ask(self, step: Tensor) -> Edits:
        """A new member while the population is being drawn, a rival of an old one after that."""
        initial = self.initial(step)
        if bool(initial.all()):
            self.candidate = self.random_members(step)
        elif bool(initial.any()):
            new, rivals = self.random_members(step), self.rivals(step)
            self.candidate = torch.where(wide(initial), new, rivals)
        else:
            self.candidate = self.rivals(step)
        return self.paint(self.candidate)

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Let the better of member and rival survive; close the generations that are complete."""
        rows = torch.arange(len(step), device=step.device)
        member = self.age % self.members
        better = self.initial(step) | (feedback.loss < self.loss[rows, member])
        old = self.population[rows, member]
        self.survivors[rows, member] = torch.where(wide(better), self.candidate, old)
        self.loss[rows, member] = torch.where(better, feedback.loss, self.loss[rows, member])
        self.promote(better & ~self.initial(step))
        self.age = self.age + 1
        closed = rows[member == self.members - 1]
        if len(closed):
            self.close(closed)

    def others(self, step: Tensor, count: int) -> tuple[Tensor, ...]:
        """Random members, all different, none of them the one that is challenged."""
        rows = torch.arange(len(step), device=step.device)[:, None]
        race = rng.bits(self.stream, step, Purpose.ONE_PIXEL_PARENTS, self.members)
        challenged = (self.age % self.members)[:, None]
        race.scatter_(1, challenged, torch.iinfo(race.dtype).max)
        return self.population[rows, rng.winners(race, count)].unbind(1)

    # what an evolution is

    def random_members(self, step: Tensor) -> Tensor:
        """One new member each."""
        raise NotImplementedError

    def rivals(self, step: Tensor) -> Tensor:
        """A rival of the member whose turn it is."""
        raise NotImplementedError

    def paint(self, members: Tensor) -> Edits:
        """Members as edits."""
        raise NotImplementedError

    def promote(self, better: Tensor) -> None:
        """What else becomes of rivals that are ``better``: nothing, as a rule."""

    def close(self, rows: Tensor) -> None:
        """Let the survivors of a complete generation be the population."""
        self.population[rows] = self.survivors[rows]


def wide(which: Tensor) -> Tensor:
    """``(n,)`` flags as wide as members."""
    return which[:, None, None]
