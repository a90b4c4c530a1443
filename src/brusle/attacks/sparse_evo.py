"""SparseEvo (Vo, Abbasnejad, Ranasinghe, ICLR 2022): evolution of masks, from labels alone.

A mask says which pixels show the starting image, an adversarial one, and which the original. A
population of masks is bred towards few pixels. The first masks give back a few random pixels to
the original. Then every query is one child: the best mask, without the pixels that a cross of two
other members lacks (binary differential recombination), and without a few more at random
(mutation). It takes the place of the worst member if it is fitter. The fitness is the l2 distance
to the original for a mask that is adversarial, and infinite for all others.

Details are those of the released code: the l2 distance and not the number of pixels as fitness, the
rates, and first masks that give back 1/256 of all pixels and, as long as the image is not
adversarial, one fewer at each try. Two things differ. When even one pixel is too many, the code
goes through the pixels in their order; here the member stays the starting image. And a search that
is stuck, because 10 times as many children as the best mask has pixels were refused in a row,
begins anew; the code goes on.

Two adaptations to scores are from the BruSLe paper ("Alternative Loss"):

* ``variant="loss"``: the loss takes the place of the distance; all else is the same. Nothing asks
  for few pixels any more but the recombination, and the paper found no success below half of all
  pixels.
* ``variant="synthetic"``: the loss as fitness, a synthetic colour image in place of the starting
  image, and a recombination "slightly modified", of which the paper says no more. Here all masks
  have exactly the budget's pixels: of the best mask's pixels that the cross lacks, each is with
  chance 1 - crossover_rate exchanged for one that only the cross has, and the mutation moves
  pixels instead of giving them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks import palettes
from brusle.attacks.base import (
    LOSS_OPTIONS,
    LossOption,
    SparseAttack,
    choose_loss,
    require_choice,
    require_integer,
)
from brusle.errors import InputError
from brusle.goals import Loss
from brusle.problems import Dense, Edits, Problems, flatten_pixels
from brusle.search import Feedback, Needs, Search

Variant = Literal["decision", "loss", "synthetic"]
_PATIENCE = 10
_PARENTS, _CROSS, _FIRST, _SECOND, _LEAVE = range(5)  # tags of the random draws of one step


@dataclass(frozen=True)
class SparseEvo(SparseAttack):
    """The authors' attack and two relatives that follow scores; the defaults are the authors'.

    Attributes:
        pixels: the budget; the search goes on until so few pixels are enough.
        queries: most queries per image.
        variant: ``"decision"``, ``"loss"`` or ``"synthetic"``, see the top of this file.
        population: number of masks, at least 3.
        mutation_rate: share of the best mask's pixels that mutate, at least one pixel; None means
            0.01 targeted and 0.04 untargeted, and above 128 x 128 pixels a tenth of that.
        crossover_rate: how much of a cross is from the first of its two parents.
        initial_share: share of all pixels that the first masks give back (not for synthetic).
        loss: for the variants that follow scores; ``"auto"`` is cross-entropy if targeted and the
            margin of softmax scores if not.
    """

    queries: int = 2000
    variant: Variant = "decision"
    population: int = 10
    mutation_rate: float | None = None
    crossover_rate: float = 0.9
    initial_share: float = 1 / 256
    loss: LossOption = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("variant", self.variant, ("decision", "loss", "synthetic"))
        require_choice("loss", self.loss, LOSS_OPTIONS)
        require_integer("population", self.population, least=3)
        rates = {name: getattr(self, name) for name in ("crossover_rate", "initial_share")}
        if self.mutation_rate is not None:
            rates["mutation_rate"] = self.mutation_rate
        for name, rate in rates.items():
            if not 0 < rate <= 1:
                raise InputError(f"{name} is {rate}: it must be above 0 and at most 1")

    @property
    def needs(self) -> Needs:
        """Labels are enough for the authors' attack."""
        return "labels" if self.variant == "decision" else "scores"

    @property
    def dense(self) -> bool:
        """Mixtures with the starting image may differ from the original everywhere."""
        return self.variant != "synthetic"

    @property
    def shrinks(self) -> bool:
        """The masks begin with all pixels, except in the synthetic variant."""
        return self.variant != "synthetic"

    @property
    def needs_start(self) -> bool:
        """A synthetic image needs not be adversarial."""
        return self.variant != "synthetic"

    def loss_for(self, targeted: bool) -> Loss:
        """The loss that the variants with scores follow."""
        return choose_loss(self.loss, targeted)

    def rate(self, targeted: bool, pixels: int) -> float:
        """The mutation rate as given, or the authors' for the goal and the number of pixels."""
        if self.mutation_rate is not None:
            return self.mutation_rate
        rate = 0.01 if targeted else 0.04
        return rate if pixels <= 128 * 128 else rate / 10

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Begin with a population of masks that are still to be asked."""
        n, (_, h, w) = len(problems), problems.shape
        stream = rng.streams(seed, problems.ids, restart)
        rate = self.rate(problems.targets is not None, h * w)
        original = problems.flat_images
        fitness = torch.full((n, self.population), torch.inf, dtype=torch.float64).to(stream.device)
        zeros = torch.zeros_like(problems.labels)
        if self.variant == "synthetic":
            masks = original.new_zeros((n, self.population, h * w), dtype=torch.bool)
            colour = palettes.draw("binary", problems, stream)
            given = torch.zeros_like(zeros, dtype=torch.bool)
            args = (self, rate, stream, zeros, masks, fitness, masks[:, 0].clone())
            return _FixedNumber(*args, colour, given)
        assert problems.starts is not None  # the loop has found them
        start = flatten_pixels(problems.starts)
        whole = (start != original).any(2)
        masks = whole[:, None].repeat(1, self.population, 1)
        # whole numbers: their sum does not depend on the order, nor on the batch
        cost = ((start - original).double().square().sum(2) * 2**32).round().long().clamp_min(1)
        flips = max(round(self.initial_share * h * w), 1)
        return _Shrinking(
            *(self, rate, stream, zeros, masks, fitness, whole.clone()),
            original=original,
            start=start,
            whole=whole,
            cost=cost,
            member=zeros.clone(),
            flips=torch.full_like(zeros, flips),
            refused=zeros.clone(),
            left=whole.sum(1),
            most_flips=flips,
        )


@dataclass
class _Population(Search):
    """Masks and their fitness, the lower the better."""

    settings: SparseEvo
    rate: float  # of mutation
    stream: Tensor
    asked: Tensor  # (n,) queries so far
    masks: Tensor  # (n, members, h * w) bool
    fitness: Tensor  # (n, members)
    candidate: Tensor  # (n, h * w) bool: the mask just asked

    def _bits(self, tag: int) -> Tensor:
        """A random number for every pixel."""
        return rng.bits(self.stream, self.asked, tag, self.masks.shape[2])

    def _parents(self) -> tuple[Tensor, Tensor]:
        """The best mask, and a cross of two different others."""
        others = self.settings.population - 1
        a, b = rng.bits(self.stream, self.asked, _PARENTS, 2).long().unbind(1)
        a = a % others
        b = (a + 1 + b % (others - 1)) % others
        ranks = torch.stack([torch.zeros_like(a), a + 1, b + 1], 1)
        members = self.fitness.sort(dim=1, stable=True).indices.gather(1, ranks)
        rows = torch.arange(len(a), device=a.device)[:, None]
        best, first, second = self.masks[rows, members].unbind(1)
        from_first = rng.uniform(self._bits(_CROSS)) < self.settings.crossover_rate
        return best, torch.where(from_first, first, second)

    def _settle(self, member: Tensor, fitness: Tensor, accepted: Tensor) -> None:
        """Let the candidates that are ``accepted`` take the places ``member``."""
        rows = accepted.nonzero()[:, 0]
        self.masks[rows, member[rows]] = self.candidate[rows]
        self.fitness[rows, member[rows]] = fitness[rows]

    def _worst(self) -> Tensor:
        return self.fitness.sort(dim=1, stable=True).indices[:, -1]


@dataclass
class _Shrinking(_Population):
    """The decision and loss variants: from the starting image towards the original."""

    original: Tensor  # (n, h * w, c)
    start: Tensor  # (n, h * w, c)
    whole: Tensor  # (n, h * w) bool: where the two differ
    cost: Tensor  # (n, h * w) whole numbers: their squared distance
    member: Tensor  # (n,) which first mask is being drawn; beyond the last, evolution
    flips: Tensor  # (n,) how many pixels it gives back
    refused: Tensor  # (n,) children in a row
    left: Tensor  # (n,) pixels of the best mask
    most_flips: int

    def ask(self) -> Dense:
        """A first mask or a child, as far as each row is."""
        first = self.initial()
        best, cross = self._parents()
        self.left = best.sum(1)
        mask = torch.where(first[:, None], self.whole, best & cross)
        mutate = (mask.sum(1) * self.rate).long().clamp_min(1)
        back = choose(mask, torch.where(first, self.flips, mutate), self._bits(_FIRST))
        self.candidate = mask & ~back
        return Dense(torch.where(self.candidate[:, :, None], self.start, self.original))

    def initial(self) -> Tensor:
        """``(n,)``: the population is still being filled."""
        return self.member < self.settings.population

    def tell(self, feedback: Feedback) -> None:
        """Fill the population, or replace its worst member."""
        first, worst = self.initial(), self._worst()
        fitness = feedback.loss
        if self.settings.variant == "decision":
            fitness = (self.cost * self.candidate).sum(1).double()
        fitness = fitness.masked_fill(~feedback.reached, torch.inf)
        fitter = fitness < self.fitness.gather(1, worst[:, None])[:, 0]
        accepted = torch.where(first, feedback.reached, fitter)
        self._settle(torch.where(first, self.member, worst), fitness, accepted)

        ready = first & (feedback.reached | (self.flips == 1))
        self.member = self.member + ready.long()
        self.flips = (self.flips - 1).masked_fill(ready | ~first, self.most_flips)
        self.refused = (self.refused + 1).masked_fill(first | accepted, 0)
        self._begin_anew(self.refused >= _PATIENCE * self.left)
        self.asked = self.asked + 1

    def _begin_anew(self, stuck: Tensor) -> None:
        """Draw another population where nothing gets fitter."""
        rows = stuck.nonzero()[:, 0]
        self.masks[rows] = self.whole[rows, None]
        self.fitness[rows] = torch.inf
        self.member = self.member.masked_fill(stuck, 0)
        self.refused = self.refused.masked_fill(stuck, 0)


@dataclass
class _FixedNumber(_Population):
    """The synthetic variant: all masks have the budget's number of pixels."""

    colour: Tensor  # (n, h * w, c): the synthetic image
    given: Tensor  # (n,) bool: the population is one mask (`resume_from`), not asked yet

    def ask(self) -> Edits:
        """A random mask or a child, as far as each row is."""
        first = self.initial()
        child = self._child()
        if bool(first.any()):
            anything, all_pixels = torch.ones_like(child), torch.full_like(self.asked, self._b)
            drawn = choose(anything, all_pixels, self._bits(_FIRST))
            child = torch.where(first[:, None], drawn, child)
            child = torch.where(self.given[:, None], self.masks[:, 0], child)
        self.candidate = child
        index = child.nonzero()[:, 1].view(len(child), self._b)
        depth = self.colour.shape[2]
        return Edits(index, self.colour.gather(1, index[:, :, None].expand(-1, -1, depth)))

    def initial(self) -> Tensor:
        """``(n,)``: the population is still being filled."""
        return self.asked < self.settings.population

    def tell(self, feedback: Feedback) -> None:
        """Fill the population, or replace its worst member."""
        member = torch.where(self.initial(), self.asked, self._worst())
        fitter = feedback.loss < self.fitness.gather(1, member[:, None])[:, 0]
        self._settle(member, feedback.loss, fitter)
        # all members are the mask that was given, and as fit
        self.fitness = torch.where(self.given[:, None], feedback.loss[:, None], self.fitness)
        self.given = torch.zeros_like(self.given)
        self.asked = self.asked + 1

    def resume_from(self, edits: Edits) -> None:
        """Take the edits as every member, and their colours into the synthetic image."""
        index = edits.index[:, :, None].expand(edits.colour.shape)
        self.colour.scatter_(1, index, edits.colour)
        mask = torch.zeros_like(self.candidate).scatter(1, edits.index, True)
        self.masks = mask[:, None].repeat(1, self.settings.population, 1)
        self.given = torch.ones_like(self.given)
        self.asked = self.asked + self.settings.population - 1

    @property
    def _b(self) -> int:
        return self.settings.pixels

    def _child(self) -> Tensor:
        """Exchange pixels of the best mask for pixels of the cross, then move some anywhere."""
        best, cross = self._parents()
        leaves = rng.uniform(self._bits(_LEAVE)) >= self.settings.crossover_rate
        mine, theirs = best & ~cross & leaves, cross & ~best
        child = _exchange(best, mine, theirs, mine.sum(1), self._bits(_FIRST))
        moves = torch.full_like(self.asked, max(int(self._b * self.rate), 1))
        return _exchange(child, child, ~child, moves, self._bits(_SECOND))


def choose(among: Tensor, count: Tensor, numbers: Tensor) -> Tensor:
    """Draw ``(n,)`` ``count`` of the set positions of each row, or all if there are fewer.

    Args:
        among: ``(n, positions)`` bool.
        count: ``(n,)``.
        numbers: ``(n, positions)`` random bits; the smallest win.

    Returns:
        ``(n, positions)`` bool.
    """
    most = min(int(count.max()), among.shape[1])
    race = numbers.long() + ((~among).long() << 31)
    drawn = torch.arange(most, device=count.device) < count[:, None]
    return torch.zeros_like(among).scatter(1, rng.winners(race, most), drawn) & among


def _exchange(mask: Tensor, out: Tensor, into: Tensor, count: Tensor, numbers: Tensor) -> Tensor:
    """Replace up to ``count`` pixels ``out`` of a mask by as many pixels ``into``."""
    count = torch.minimum(count, torch.minimum(out.sum(1), into.sum(1)))
    return mask & ~choose(out, count, numbers) | choose(into, count, numbers)
