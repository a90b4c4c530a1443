"""The search of BayesOpt: random edits first, then those that its model expects most of."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.bayes_opt.model import Model, expected_improvement, quantiles
from brusle.attacks.bayes_opt.region import Neighbourhood, Region
from brusle.problems import Candidates, Edits, to_levels
from brusle.rng import Purpose
from brusle.rows import Shared
from brusle.search import Feedback, Search

if TYPE_CHECKING:
    from brusle.attacks.bayes_opt import BayesOpt

ROUNDS = 4  # of the local search: one around the best candidate, the others around the last best
GAIN = 1e-3  # a loss is better if it is lower by this share


@dataclass
class BayesOptSearch(Search):
    """All that was asked and learned, and the trust region."""

    settings: BayesOpt
    grid: Shared  # the places of new positions
    stream: Tensor
    born: Tensor  # (n,) queries before the present trust region
    index: Tensor  # (n, queries, pixels): positions asked
    colour: Tensor  # (n, queries, pixels, c): their colours
    loss: Tensor  # (n, queries)
    region: Region
    scales: Tensor  # (n, 3): logarithms of the model's parameters, see `Model`

    def initial(self, step: Tensor) -> Tensor:
        """``(n,)``: the first candidates of a trust region are random."""
        return step - self.born < self.settings.initial

    def ask(self, step: Tensor) -> Edits:
        """Random edits at first, then those that the model expects most of."""
        rows = torch.arange(len(step), device=step.device)
        initial = self.initial(step)
        if bool(initial.any()):
            new = rows[initial]
            index, colour = self._random_edits(new, step[new])
            self.index[new, step[new]] = index
            self.colour[new, step[new]] = colour
        for row in rows[~initial].tolist():
            self._advise(row, int(step[row]))
        return Edits(self.index[rows, step], self.colour[rows, step])

    def _random_edits(self, rows: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Places of the grid in uniform colours."""
        n, k, c = len(rows), self.settings.pixels, self.colour.shape[3]
        stream = self.stream[rows]
        numbers = rng.bits(stream, step, Purpose.BAYES_OPT_START, len(self.grid.values))
        place = rng.winners(numbers, k)
        u = rng.uniform(rng.bits(stream, step, Purpose.BAYES_OPT_COLOUR, k * c))
        return self.grid.values[place], to_levels(u.view(n, k, c))

    def _advise(self, row: int, step: int) -> None:
        """Write the candidate that the model prefers into the history of one problem."""
        born = int(self.born[row])
        # copies: the last bits of matrix products may depend on where in memory a matrix begins
        index = self.index[row, born:step].clone().cpu()
        colour = self.colour[row, born:step].double().cpu()
        loss = self.loss[row, born:step].cpu()
        fit = (step - born) % self.settings.refit == 0
        model = Model(index, colour, quantiles(loss), self.scales[row].clone().cpu(), fit)
        self.scales[row] = model.scales
        at = int(loss.argmin())
        radius, side = int(self.region.radius[row]), float(self.region.side[row])
        region = Neighbourhood(index[at], colour[at], radius, side, self.grid.values.cpu())
        share, k = self.settings.candidates // ROUNDS, colour[0].numel() + 2 * index.shape[1]
        count = ROUNDS * share * (1 + k)
        stream = self.stream[row : row + 1]
        u = rng.uniform(rng.bits(stream, step, Purpose.BAYES_OPT_SEARCH, count))
        found, paint = maximise(model, at, region, u.cpu().view(ROUNDS, share, 1 + k))
        self.index[row, step] = found
        self.colour[row, step] = paint.float()

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Take the loss down, and adapt the trust region."""
        rows = torch.arange(len(step), device=step.device)
        past = torch.arange(self.loss.shape[1], device=step.device)
        mine = (past >= self.born[:, None]) & (past < step[:, None])
        best = self.loss.masked_fill(~mine, torch.inf).amin(1)
        better = feedback.loss <= best - GAIN * best.abs()
        searching = ~self.initial(step)
        adapted = copy.copy(self.region)
        collapsed = adapted.update(better, self.settings.failures, self.settings.pixels)
        self.region = adapted.where(searching, self.region)
        self.loss[rows, step] = feedback.loss
        again = rows[searching & collapsed]
        if len(again):
            self.born[again] = step[again] + 1
            first = Region.first(len(again), self.settings.pixels, again.device)
            self.region.replace(again, first)

    def resume(self, edits: Edits) -> Candidates:
        """Take the edits as the first candidate."""
        self.index[:, 0] = edits.index
        self.colour[:, 0] = edits.colour
        return edits


def maximise(model: Model, at: int, region: Neighbourhood, u: Tensor) -> tuple[Tensor, Tensor]:
    """The point of a trust region with the largest expected improvement, by local search.

    The improvement is over the model's opinion of the centre, which is number ``at`` of its data:
    on a randomised victim the best loss seen was partly luck.

    Args:
        model: predicts losses.
        at: number of the centre in the model's data.
        region: the trust region.
        u: ``(rounds, m, 1 + (2 + c) k)`` uniform numbers: m candidates in each round.
    """
    best = model.fitted[at]
    index, colour, value = region.index, region.colour, -1.0
    for turn, numbers in enumerate(u):
        some, paint = region.vary(index, colour, 1 if turn else region.radius, numbers)
        gain = expected_improvement(*model.predict(some, paint), best)
        top = int(gain.argmax())
        if float(gain[top]) > value:
            index, colour, value = some[top], paint[top], float(gain[top])
    return index, colour
