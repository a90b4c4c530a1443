"""The evolution of torchattacks.

The BruSLe paper compares with another implementation, that of torchattacks (its footnote says so),
"with the default setting and 1000 queries". This follows version 3.5.1 of it,
number for number if it is given the same random ones:

* Its evolution is an old one of SciPy's, "best1bin" without crossover: a rival is the best member
  plus F times the difference of two others. F is drawn from [0.5, 1) for each generation. All
  values begin uniform. One that leaves its range is drawn anew, colours included.
* The population is ``popsize``, 10, rounded down to a multiple of the numbers in a member (2 and
  the channels, for each pixel), but at least that many, and at least 5: 10, 15 and 25 members for
  1, 3 and 5 pixels of an RGB image.
* A generation is judged when it is complete. A rival that beats the best takes its place as well as
  that of the member it challenged.
* Two edits on one pixel: the later one counts, so fewer pixels change.
* There is no new population after convergence. (Its test for convergence cannot come true.)

What differs is what belongs to the loop. Its ``steps``, 10 by default, are the query limit here:
with p members, ``steps`` of them are p (steps + 1) queries, so its defaults are 110, 165 and 275
queries for 1, 3 and 5 pixels. It also asks for the best image again after each generation, to see
whether it is a success, and notices one only there; here every answer is looked at, and no image is
asked for that. Colours are rounded to 8-bit levels when they are painted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.one_pixel.evolution import Evolution
from brusle.problems import Candidates, Edits, to_levels
from brusle.rng import Purpose


@dataclass
class Torchattacks(Evolution):
    """All numbers of a member are in [0, 1], coordinates as well.

    The first member of a complete generation is the best.
    """

    def random_members(self, step: Tensor) -> Tensor:
        """One member each, uniformly."""
        numbers = self.candidate[0].numel()
        u = rng.uniform(rng.bits(self.stream, step, Purpose.ONE_PIXEL_MEMBER, numbers))
        return u.view(self.candidate.shape)

    def rivals(self, step: Tensor) -> Tensor:
        """Move the best by a difference of two others than the one that is challenged."""
        one, two = self.others(step, 2)
        generation = step - self.age % self.members  # its first query
        u = rng.uniform(rng.bits(self.stream, generation, Purpose.ONE_PIXEL_SCALE, 1))
        mixed = self.population[:, 0] + (0.5 + 0.5 * u)[:, :, None] * (one - two)
        numbers = rng.bits(self.stream, step, Purpose.ONE_PIXEL_AGAIN, mixed[0].numel())
        outside = (mixed < 0) | (mixed > 1)
        return torch.where(outside, rng.uniform(numbers).view(mixed.shape), mixed)

    def paint(self, members: Tensor) -> Edits:
        """Two edits on one pixel both get the colour of the later one."""
        size = self.size.values
        row, column = (members[:, :, :2] * size).long().minimum(size - 1).unbind(2)
        index = row * size[1] + column
        in_order, order = index.sort(dim=1, stable=True)
        later = order.gather(1, torch.searchsorted(in_order, index, right=True) - 1)
        colour = to_levels(members[:, :, 2:])
        return Edits(index, colour.gather(1, later[:, :, None].expand_as(colour)))

    def promote(self, better: Tensor) -> None:
        """A rival better than all before it takes the place of the first member, too."""
        rows = torch.arange(len(better), device=better.device)
        loss = self.loss[rows, self.age % self.members]
        best = better & (loss < self.loss[:, 0])
        self.survivors[best, 0] = self.candidate[best]
        self.loss[best, 0] = loss[best]

    def close(self, rows: Tensor) -> None:
        """Let the survivors be the population; the best of the first one changes places."""
        first = rows[self.age[rows] == self.members]
        best = self.loss[first].argmin(1)
        for state in (self.survivors, self.loss):
            swapped = state[first, 0]
            state[first, 0] = state[first, best]
            state[first, best] = swapped
        super().close(rows)

    def resume(self, edits: Edits) -> Candidates:
        """Take the edits as the first member."""
        size = self.size.values
        place = torch.stack([edits.index // size[1], edits.index % size[1]], 2) + 0.5
        self.candidate = torch.cat([place, edits.colour], 2).double()
        self.candidate[:, :, :2] /= size
        return edits
