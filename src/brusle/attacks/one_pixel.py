"""The one-pixel attack (Su, Vargas, Sakurai, IEEE TEVC 2019): differential evolution of edits.

A member of the population is a list of edits, each a row, a column and a colour. Coordinates begin
uniform, colour values as N(128, 127). In every generation each member gets a rival, made of three
others as x_r1 + F (x_r2 - x_r3), and the better of the two survives. Only the order of losses
matters, so the paper's fitness, the probability of the true or of the target class, is the
cross-entropy here.

What the paper leaves open, or does at a length that a query limit does not allow:

* The population. The paper evolves 400 members for 100 generations, which is 40 000 queries.
  Here the limit is given, and unless told otherwise a fortieth of it is the population: of 25,
  50, 100 and 200 members, 25 did best with 5 pixels and 1000 queries on the bundled net, by a
  few points on 91 images.
* Values out of range. A coordinate outside the image is drawn anew; a colour value is cut off at
  black or white.
* Two edits on one pixel. They take neighbouring pixels instead, see `make_room`.
* Convergence. Members that all have the same loss cannot teach anything more: a new population is
  drawn. (The loop remembers the best image.)

The BruSLe paper compares with another implementation, that of torchattacks (its footnote says so),
"with the default setting and 1000 queries". ``variant="torchattacks"`` follows version 3.5.1 of it,
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
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from brusle import rng
from brusle.attacks.base import SparseAttack
from brusle.attacks.options import Count, Share
from brusle.errors import InputError
from brusle.problems import Candidates, Edits, Problems, to_levels
from brusle.rng import Purpose
from brusle.rows import Shared
from brusle.scores import Loss, LossOption, Meaning
from brusle.search import Feedback, Search

Variant = Literal["paper", "torchattacks"]


@dataclass(frozen=True)
class OnePixel(SparseAttack):
    """The paper's attack on any number of pixels.

    Attributes:
        pixels: most pixels that may differ from the original; 1, 3 and 5 in the paper.
        queries: most queries per image.
        population: members, at least 4; None means a fortieth of the queries, but at least 10.
            The paper has 400. For torchattacks its ``popsize``, None meaning 10.
        f: the factor F on the difference of two members.
        crossover: chance that a rival's value comes from the new mixture and not from the member
            it challenges; 1 means no crossover, as in the paper.
        loss: ``"auto"`` is cross-entropy, which ranks images like the paper's probabilities.
        variant: ``"paper"`` or ``"torchattacks"``, see the top of this file; the latter has its own
            F and no crossover.
    """

    pixels: Count = 1
    queries: Count = 1000
    population: Annotated[int, Ge(4)] | None = None
    f: Annotated[float, Gt(0), Le(2)] = 0.5
    crossover: Share = 1.0
    loss: LossOption = "auto"
    variant: Variant = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant == "torchattacks" and (self.f, self.crossover) != (0.5, 1.0):
            raise InputError(
                "variant 'torchattacks' draws F itself and has no crossover: leave both"
            )

    def members(self, channels: int) -> int:
        """The size of the population, on images of so many channels."""
        if self.variant == "torchattacks":
            numbers = self.pixels * (2 + channels)
            popsize = 10 if self.population is None else self.population
            return max(5, numbers * max(1, popsize // numbers))
        return max(10, self.queries // 40) if self.population is None else self.population

    def loss_for(self, targeted: bool, meaning: Meaning) -> Loss:
        """Cross-entropy ranks images like the paper's probabilities."""
        return meaning.loss(self.loss, "ce")

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """An empty population; its members are drawn as they are asked."""
        n, (c, h, w) = len(problems), problems.shape
        device, members = problems.images.device, self.members(c)
        kind: type[_Evolution] = _Evolution
        dtype = torch.float32
        if self.variant == "torchattacks":
            kind, dtype = _Torchattacks, torch.float64
        population = torch.zeros(n, members, self.pixels, 2 + c, dtype=dtype, device=device)
        return kind(
            settings=self,
            members=members,
            size=Shared(torch.tensor([h, w], device=device)),
            stream=rng.streams(seed, problems.ids, restart),
            age=torch.zeros_like(problems.labels),
            population=population,
            survivors=population.clone(),
            candidate=population[:, 0].clone(),
            loss=torch.zeros(n, members, dtype=torch.float64, device=device),
        )


@dataclass
class _Evolution(Search):
    """The state of the evolution. A member is (pixels, 2 + c): row, column, colour in [0, 1].

    Coordinates are real numbers in [0, h) and [0, w); colours are kept on 8-bit levels.
    """

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
            self.candidate = self._random_members(step)
        elif bool(initial.any()):
            new, rivals = self._random_members(step), self._rivals(step)
            self.candidate = torch.where(_wide(initial), new, rivals)
        else:
            self.candidate = self._rivals(step)
        return self._paint(self.candidate)

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Let the better of member and rival survive; close the generations that are complete."""
        rows = torch.arange(len(step), device=step.device)
        member = self.age % self.members
        better = self.initial(step) | (feedback.loss < self.loss[rows, member])
        old = self.population[rows, member]
        self.survivors[rows, member] = torch.where(_wide(better), self.candidate, old)
        self.loss[rows, member] = torch.where(better, feedback.loss, self.loss[rows, member])
        self._promote(better & ~self.initial(step))
        self.age = self.age + 1
        closed = rows[member == self.members - 1]
        if len(closed):
            self._close(closed)

    def _promote(self, better: Tensor) -> None:
        """What else becomes of rivals that are ``better``: nothing."""

    def _close(self, rows: Tensor) -> None:
        """Let the survivors be the population; draw another one where all are alike."""
        self.population[rows] = self.survivors[rows]
        low, high = self.loss[rows].aminmax(dim=1)
        self.age[rows] = torch.where(low < high, self.age[rows], 0)

    def resume(self, edits: Edits) -> Candidates:
        """Take the edits as the first member."""
        w = self.size.values[1]
        place = torch.stack([edits.index // w, edits.index % w], 2) + 0.5
        self.candidate = torch.cat([place, edits.colour], 2)
        return edits

    def _random_members(self, step: Tensor) -> Tensor:
        """One member each, as the paper initialises them."""
        n, k, genes = self.candidate.shape
        u = rng.uniform(rng.bits(self.stream, step, Purpose.ONE_PIXEL_MEMBER, k * genes)).view(
            n, k, genes
        )
        colour = (128 + 127 * torch.special.ndtri(u[:, :, 2:])) / 255
        return torch.cat([self._coordinates(u[:, :, :2]), to_levels(colour)], 2)

    def _rivals(self, step: Tensor) -> Tensor:
        """Mix three others than the one that is challenged."""
        one, two, three = self._others(step, 3)
        # no fused operation: its last bit may depend on the place in the batch
        mixed = one + (two - three) * self.settings.f
        place = mixed[:, :, :2]
        outside = (place < 0) | (place >= self.size.values)
        numbers = rng.bits(self.stream, step, Purpose.ONE_PIXEL_AGAIN, place[0].numel())
        again = self._coordinates(rng.uniform(numbers).view(place.shape))
        place = torch.where(outside, again, place)
        rival = torch.cat([place, to_levels(mixed[:, :, 2:])], 2)
        if self.settings.crossover == 1:
            return rival
        numbers = rng.bits(self.stream, step, Purpose.ONE_PIXEL_CROSSOVER, rival[0].numel())
        keep = rng.uniform(numbers).view(rival.shape) >= self.settings.crossover
        rows = torch.arange(len(rival), device=rival.device)
        return torch.where(keep, self.population[rows, self.age % self.members], rival)

    def _others(self, step: Tensor, count: int) -> tuple[Tensor, ...]:
        """Random members, all different, none of them the one that is challenged."""
        rows = torch.arange(len(step), device=step.device)[:, None]
        race = rng.bits(self.stream, step, Purpose.ONE_PIXEL_PARENTS, self.members)
        challenged = (self.age % self.members)[:, None]
        race.scatter_(1, challenged, torch.iinfo(race.dtype).max)
        return self.population[rows, rng.winners(race, count)].unbind(1)

    def _coordinates(self, u: Tensor) -> Tensor:
        """Rows and columns from uniform numbers; in float32 a number near 1 must not become h."""
        last = (self.size.values - 2.0**-10).float()
        return torch.minimum((u * self.size.values).float(), last)

    def _paint(self, members: Tensor) -> Edits:
        h, w = self.size.values
        row, column = members[:, :, :2].long().unbind(2)
        index, order = make_room(row * w + column, int(h * w))
        colour = members[:, :, 2:]
        return Edits(index, colour.gather(1, order[:, :, None].expand_as(colour)))


@dataclass
class _Torchattacks(_Evolution):
    """The evolution of torchattacks. All numbers of a member are in [0, 1], coordinates as well.

    The first member of a complete generation is the best.
    """

    def _promote(self, better: Tensor) -> None:
        """A rival better than all before it takes the place of the first member, too."""
        rows = torch.arange(len(better), device=better.device)
        loss = self.loss[rows, self.age % self.members]
        best = better & (loss < self.loss[:, 0])
        self.survivors[best, 0] = self.candidate[best]
        self.loss[best, 0] = loss[best]

    def _close(self, rows: Tensor) -> None:
        """Let the survivors be the population; the best of the first one changes places."""
        first = rows[self.age[rows] == self.members]
        best = self.loss[first].argmin(1)
        for state in (self.survivors, self.loss):
            swapped = state[first, 0]
            state[first, 0] = state[first, best]
            state[first, best] = swapped
        self.population[rows] = self.survivors[rows]

    def resume(self, edits: Edits) -> Candidates:
        """Take the edits as the first member."""
        super().resume(edits)
        self.candidate = self.candidate.double()
        self.candidate[:, :, :2] /= self.size.values
        return edits

    def _random_members(self, step: Tensor) -> Tensor:
        """One member each, uniformly."""
        numbers = self.candidate[0].numel()
        u = rng.uniform(rng.bits(self.stream, step, Purpose.ONE_PIXEL_MEMBER, numbers))
        return u.view(self.candidate.shape)

    def _rivals(self, step: Tensor) -> Tensor:
        """Move the best by a difference of two others than the one that is challenged."""
        one, two = self._others(step, 2)
        generation = step - self.age % self.members  # its first query
        u = rng.uniform(rng.bits(self.stream, generation, Purpose.ONE_PIXEL_SCALE, 1))
        mixed = self.population[:, 0] + (0.5 + 0.5 * u)[:, :, None] * (one - two)
        numbers = rng.bits(self.stream, step, Purpose.ONE_PIXEL_AGAIN, mixed[0].numel())
        outside = (mixed < 0) | (mixed > 1)
        return torch.where(outside, rng.uniform(numbers).view(mixed.shape), mixed)

    def _paint(self, members: Tensor) -> Edits:
        """Two edits on one pixel both get the colour of the later one."""
        size = self.size.values
        row, column = (members[:, :, :2] * size).long().minimum(size - 1).unbind(2)
        index = row * size[1] + column
        in_order, order = index.sort(dim=1, stable=True)
        later = order.gather(1, torch.searchsorted(in_order, index, right=True) - 1)
        colour = to_levels(members[:, :, 2:])
        return Edits(index, colour.gather(1, later[:, :, None].expand_as(colour)))


def make_room(index: Tensor, pixels: int) -> tuple[Tensor, Tensor]:
    """Move positions that occur twice to free ones nearby.

    In reading order, each position becomes the next one that those before it have left free; at
    the end of the image, where there is none, they are pushed back instead. Positions that are
    all different stay as they are.

    Args:
        index: ``(n, k)`` positions below ``pixels``.
        pixels: how many there are, at least k.

    Returns:
        ``(n, k)`` increasing positions, and where in ``index`` each of them was.
    """
    k = index.shape[1]
    if k == 1:
        return index, torch.zeros_like(index)
    sorted_index, order = index.sort(dim=1, stable=True)
    steps = torch.arange(k, device=index.device)
    # q_i = max(p_i, q_(i-1) + 1), so q_i - i is the running maximum of p_i - i
    free = (sorted_index - steps).cummax(1).values + steps
    return torch.minimum(free, pixels - k + steps), order


def _wide(which: Tensor) -> Tensor:
    return which[:, None, None]
