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

The BruSLe paper compares with the implementation of torchattacks, ``variant="torchattacks"``, which
has an evolution of its own: see `brusle.attacks.one_pixel.torchattacks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le

from brusle import rng
from brusle.attacks.base import SparseAttack
from brusle.attacks.one_pixel.evolution import Evolution
from brusle.attacks.one_pixel.paper import Paper
from brusle.attacks.one_pixel.torchattacks import Torchattacks
from brusle.attacks.options import Count, Share
from brusle.errors import InputError
from brusle.problems import Problems
from brusle.rows import Shared
from brusle.scores import Loss, LossOption, Meaning
from brusle.search import Search

__all__ = ["OnePixel"]

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
        kind: type[Evolution] = Paper
        dtype = torch.float32
        if self.variant == "torchattacks":
            kind, dtype = Torchattacks, torch.float64
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
