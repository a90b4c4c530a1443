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
from typing import Annotated, Literal

from annotated_types import Ge

from brusle.attacks.base import DECISION_BASED, SparseAttack
from brusle.attacks.options import Count, Share
from brusle.attacks.sparse_evo.shrinking import Shrinking
from brusle.attacks.sparse_evo.synthetic import Synthetic
from brusle.problems import Problems
from brusle.scores import Loss, LossOption, Meaning
from brusle.search import Behaviour, Search

__all__ = ["SparseEvo"]

Variant = Literal["decision", "loss", "synthetic"]


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

    queries: Count = 2000
    variant: Variant = "decision"
    population: Annotated[int, Ge(3)] = 10
    mutation_rate: Share | None = None
    crossover_rate: Share = 0.9
    initial_share: Share = 1 / 256
    loss: LossOption = "auto"

    @property
    def behaviour(self) -> Behaviour:
        """Masks begin with all pixels of the starting image; a synthetic one begins sparse."""
        if self.variant == "synthetic":
            return Behaviour(resumes_at=self.population - 1)
        if self.variant == "loss":
            return Behaviour(dense=True, shrinks=True, needs_start=True)
        return DECISION_BASED

    def loss_for(self, targeted: bool, meaning: Meaning) -> Loss:
        """The BruSLe paper's: cross-entropy if targeted, else the margin of softmax scores."""
        return meaning.loss(self.loss, "ce" if targeted else "margin")

    def rate(self, targeted: bool, pixels: int) -> float:
        """The mutation rate as given, or the authors' for the goal and the number of pixels."""
        if self.mutation_rate is not None:
            return self.mutation_rate
        rate = 0.01 if targeted else 0.04
        return rate if pixels <= 128 * 128 else rate / 10

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Begin with a population of masks that are still to be asked."""
        kind = Synthetic if self.variant == "synthetic" else Shrinking
        return kind.start(self, problems, seed, restart)
