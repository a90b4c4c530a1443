"""Bayesian optimisation of positions and colours, after CASMOPOLITAN (Wan et al., ICML 2021).

A candidate is a list of edits: which pixel (a category) and which colour (real numbers). A
Gaussian process predicts the loss. Its kernel mixes an overlap kernel on positions with a Matern
kernel on colours, as their sum and their product. The next candidate maximises the expected
improvement inside a trust region around the best one: at most so many positions differ, and
colours lie in a box. The region grows after some successes in a row and shrinks after many
failures; when nothing is left of it, the search starts over with new random candidates. Losses
are replaced by the normal quantiles of their ranks, as in the authors' code.

What is done otherwise:

* One length scale for all positions and one for all colours, not one per dimension: the edits of
  a candidate are exchangeable, and hundreds of scales cannot be learned from some hundred losses.
* The authors' code begins with a radius of 20 positions whatever the dimension, starts over when
  the radius is down to 1, and shrinks after 40 failures. Here the radius never exceeds the number
  of edits, 1 is still a radius, and the number of failures is an option.
* The local search draws random neighbours, positions and colours together; the authors' code
  alternates between a random neighbour of the categories and a gradient step on the rest.
* New starts are random; the authors choose them with a second Gaussian process.
* Large images are searched on a coarser grid of pixels, see ``places``.

This attack needs BoTorch (``pip install "brusle[bayes]"``) to fit the Gaussian process. It thinks
for some milliseconds about every query of every image, more the more queries it has seen: it is
meant for a few hundred queries.
"""

from __future__ import annotations

import copy
import importlib.util
import math
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from brusle import rng
from brusle.attacks.base import SparseAttack
from brusle.attacks.options import Count
from brusle.errors import InputError
from brusle.problems import Candidates, Edits, Problems, to_levels
from brusle.rng import Purpose
from brusle.rows import Rows, Shared
from brusle.scores import Loss, LossOption, Meaning
from brusle.search import Feedback, Search

_ROUNDS = 4  # of the local search: one around the best candidate, the others around the last best

# the trust region of the authors' code: radius in positions, side of the box of colours
RADIUS, MOST_RADIUS, SIDE, MOST_SIDE, LEAST_SIDE = 20.0, 30.0, 0.8, 1.6, 2.0**-7
FACTOR, SUCCESSES, GAIN = 1.5, 3, 1e-3
FIT_STEPS = 6
# the model's parameters as logarithms: at first, least, most
SCALES = {"positions": (0.0, -3.0, 3.0), "colours": (0.5, -4.0, 3.0), "noise": (-5.0, -9.0, 0.0)}


@dataclass(frozen=True)
class BayesOpt(SparseAttack):
    """Bayesian optimisation over positions and colours.

    Attributes:
        pixels: most pixels that may differ from the original.
        queries: most queries per image; 250 in the BruSLe paper.
        initial: random candidates before the model is asked for advice.
        candidates: candidates of which the most promising is asked.
        refit: the model's parameters are fitted anew after so many queries.
        failures: the trust region shrinks after so many queries without progress.
        places: most pixels that new positions are drawn from: the image is seen through a grid
            whose spacing is as small as that allows. All pixels of a 32 x 32 image.
        loss: ``"auto"`` is cross-entropy if targeted and the margin of softmax scores if not.
    """

    queries: Count = 250
    initial: Count = 20
    candidates: Annotated[int, Ge(_ROUNDS)] = 400
    refit: Count = 20
    failures: Count = 10
    places: Count = 1024
    loss: LossOption = "auto"

    def loss_for(self, targeted: bool, meaning: Meaning) -> Loss:
        """The BruSLe paper's: cross-entropy if targeted, else the margin of softmax scores."""
        return meaning.loss(self.loss, "ce" if targeted else "margin")

    def check(self, problems: Problems) -> None:
        """Raise if BoTorch is missing."""
        super().check(problems)
        if importlib.util.find_spec("botorch") is None:
            raise InputError(
                "BayesOpt fits its model with BoTorch, which is not installed: pip install "
                '"brusle[bayes]"'
            )

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """No history, and a trust region of the first size."""
        n, (c, h, w), k = len(problems), problems.shape, self.pixels
        device = problems.images.device
        return _BayesOptSearch(
            settings=self,
            grid=Shared(grid(h, w, k, self.places).to(device)),
            stream=rng.streams(seed, problems.ids, restart),
            born=torch.zeros_like(problems.labels),
            index=torch.zeros(n, self.queries, k, dtype=torch.int64, device=device),
            colour=torch.zeros(n, self.queries, k, c, device=device),
            loss=torch.zeros(n, self.queries, dtype=torch.float64, device=device),
            region=Region.first(n, k, device),
            scales=first_scales().to(device).repeat(n, 1),
        )


@dataclass
class Region(Rows):
    """Trust regions; all ``(n,)``.

    Attributes:
        radius: most positions that may differ from those of the best candidate.
        side: of the box of colours around those of the best candidate.
        wins: successes in a row.
        misses: failures in a row.
    """

    radius: Tensor
    side: Tensor
    wins: Tensor
    misses: Tensor

    @classmethod
    def first(cls, n: int, pixels: int, device: torch.device) -> Region:
        """The regions that a search begins with."""
        counts = torch.zeros(n, dtype=torch.int64, device=device)
        radius = torch.full((n,), min(RADIUS, pixels), dtype=torch.float64, device=device)
        return cls(radius, torch.full_like(radius, SIDE), counts, counts.clone())

    def update(self, better: Tensor, failures: int, pixels: int) -> Tensor:
        """Count successes and failures; grow, shrink, or return True where nothing is left."""
        self.wins = torch.where(better, self.wins + 1, 0)
        self.misses = torch.where(better, 0, self.misses + 1)
        grow, shrink = self.wins == SUCCESSES, self.misses == failures

        def scaled(size: Tensor) -> Tensor:
            return torch.where(grow, size * FACTOR, torch.where(shrink, size / FACTOR, size))

        self.radius = scaled(self.radius).clamp_max(min(MOST_RADIUS, pixels))
        self.side = scaled(self.side).clamp_max(MOST_SIDE)
        self.wins = torch.where(grow, 0, self.wins)
        self.misses = torch.where(shrink, 0, self.misses)
        return (self.radius < 1) | (self.side < LEAST_SIDE)


@dataclass
class _BayesOptSearch(Search):
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
        share, k = self.settings.candidates // _ROUNDS, colour[0].numel() + 2 * index.shape[1]
        count = _ROUNDS * share * (1 + k)
        stream = self.stream[row : row + 1]
        u = rng.uniform(rng.bits(stream, step, Purpose.BAYES_OPT_SEARCH, count))
        found, paint = maximise(model, at, region, u.cpu().view(_ROUNDS, share, 1 + k))
        self.index[row, step] = found
        self.colour[row, step] = paint.float()


class Model:
    """A Gaussian process over edits, with the mean 0 and a variance that fits the data best.

    Args:
        index: ``(t, k)`` positions.
        colour: ``(t, k, c)`` float64.
        y: ``(t,)`` standardised losses.
        scales: ``(3,)`` logarithms of the length scales of positions and colours, and of the
            noise as a share of the variance.
        fit: whether to fit the scales first.
    """

    def __init__(
        self, index: Tensor, colour: Tensor, y: Tensor, scales: Tensor, fit: bool = False
    ) -> None:
        self.index, self.colour, self.y = index, colour, y
        self._apart = distances(index, colour, index, colour)
        self._eye = torch.eye(len(y), dtype=torch.float64)
        self.scales = self._fit(scales) if fit else scales
        noise = self.scales[2].exp()
        self.root = torch.linalg.cholesky(kernel(*self._apart, self.scales) + noise * self._eye)
        self.weight = torch.cholesky_solve(y[:, None], self.root)[:, 0]
        self.variance = (y * self.weight).mean().clamp_min(1e-9)
        self.fitted = y - noise * self.weight  # the mean at the data

    def predict(self, index: Tensor, colour: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the loss of ``m`` candidates, without noise."""
        k = kernel(*distances(index, colour, self.index, self.colour), self.scales)
        whitened = torch.linalg.solve_triangular(self.root, k.T, upper=False)
        left = (1 - whitened.square().sum(0)).clamp_min(1e-12)
        return k @ self.weight, (self.variance * left).sqrt()

    def _fit(self, scales: Tensor) -> Tensor:
        """Maximise the marginal likelihood."""
        from botorch.optim.core import scipy_minimize

        parts = {name: scales[i].clone().requires_grad_() for i, name in enumerate(SCALES)}

        def closure() -> tuple[Tensor, list[Tensor]]:
            with torch.enable_grad():
                now = torch.stack(list(parts.values()))
                root = torch.linalg.cholesky(kernel(*self._apart, now) + now[2].exp() * self._eye)
                whitened = torch.linalg.solve_triangular(root, self.y[:, None], upper=False)
                variance = whitened.square().mean().clamp_min(1e-9)
                cost = root.diagonal().log().sum() + 0.5 * len(self.y) * variance.log()
                return cost, list(torch.autograd.grad(cost, list(parts.values())))

        bounds: dict[str, tuple[float | None, float | None]] = {
            name: (low, high) for name, (_, low, high) in SCALES.items()
        }
        scipy_minimize(closure, parts, bounds, options={"maxiter": FIT_STEPS})
        return torch.stack([part.detach() for part in parts.values()])


def first_scales() -> Tensor:
    """The model's parameters before anything is known."""
    return torch.tensor([first for first, _, _ in SCALES.values()], dtype=torch.float64)


def distances(index: Tensor, colour: Tensor, other: Tensor, paint: Tensor) -> tuple[Tensor, Tensor]:
    """Share of positions that differ, and root mean square difference of colours."""
    moved = (index[:, None] != other).double().mean(2)
    apart = torch.cdist(colour.flatten(1), paint.flatten(1)) / math.sqrt(colour[0].numel())
    return moved, apart


def kernel(moved: Tensor, apart: Tensor, scales: Tensor) -> Tensor:
    """The mixture of an overlap and a Matern-5/2 kernel, 1 for equal candidates."""
    overlap = torch.exp(-moved / scales[0].exp())
    r = math.sqrt(5) * apart / scales[1].exp()
    matern = (1 + r + r.square() / 3) * torch.exp(-r)
    return 0.25 * (overlap + matern) + 0.5 * overlap * matern


def quantiles(loss: Tensor) -> Tensor:
    """Ranks of losses as quantiles of the normal distribution; equal losses have equal ranks."""
    rank = (loss[:, None] >= loss).sum(1)
    normal: Tensor = torch.special.ndtri(rank.double() / (len(loss) + 1))
    return normal


def expected_improvement(mean: Tensor, deviation: Tensor, best: Tensor) -> Tensor:
    """By how much a normal variable is expected to fall below ``best``."""
    u = (best - mean) / deviation
    density = torch.exp(-0.5 * u.square()) / math.sqrt(2 * math.pi)
    below: Tensor = torch.special.ndtr(u)
    return deviation * (density + u * below)


@dataclass(frozen=True)
class Neighbourhood:
    """A trust region around one candidate, and how points in it are drawn.

    Attributes:
        index: ``(k,)`` positions of the centre.
        colour: ``(k, c)`` its colours.
        radius: most positions that may differ.
        side: of the box of colours.
        grid: places of new positions.
    """

    index: Tensor
    colour: Tensor
    radius: int
    side: float
    grid: Tensor

    def vary(self, index: Tensor, colour: Tensor, most: int, u: Tensor) -> tuple[Tensor, Tensor]:
        """Change one to ``most`` edits of a point without leaving the region.

        Each of them gets a new colour, and every other one a new position, if that is free.

        Args:
            index: ``(k,)`` positions of the point.
            colour: ``(k, c)`` its colours.
            most: most edits to change.
            u: ``(m, 1 + (2 + c) k)`` uniform numbers.

        Returns:
            ``(m, k)`` positions and ``(m, k, c)`` colours on 8-bit levels.
        """
        (k, c), m = colour.shape, len(u)
        number, race, where, paint = torch.split(u, [1, k, k, c * k], 1)
        count = (number * most).long()  # one less than the edits to change
        changed = race <= race.sort(1).values.gather(1, count)
        where = (where * 2 * len(self.grid)).long()
        place, move = self.grid[where // 2], changed & (where % 2 == 0)
        move &= ~torch.isin(place, index)
        if most > 1:
            move &= ~_seen_before(place)
        new_index = torch.where(move, place, index)
        far = (new_index != self.index).sum(1, keepdim=True) > self.radius
        # beyond the box and then cut off: most of the useful colours are on the border
        box = self.colour + self.side * (paint.view(m, k, c) - 0.5)
        new_colour = torch.where(changed[:, :, None], to_levels(box).double(), colour)
        return torch.where(far, index, new_index), new_colour


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


def grid(h: int, w: int, pixels: int, places: int) -> Tensor:
    """Positions on a grid: at most ``places``, unless that leaves fewer than twice ``pixels``."""

    def count(spacing: int) -> int:
        return math.ceil(h / spacing) * math.ceil(w / spacing)

    spacing = 1
    while count(spacing) > places and count(spacing + 1) >= 2 * pixels:
        spacing += 1
    row, column = ((torch.arange(0, s, spacing) + spacing // 2).clamp_max(s - 1) for s in (h, w))
    return (row[:, None] * w + column).flatten()


def _seen_before(place: Tensor) -> Tensor:
    """Which entries occur more than once in their row, all but one of them."""
    ordered, order = place.sort(dim=1, stable=True)
    again = torch.zeros_like(place, dtype=torch.bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(again).scatter(1, order, again)
