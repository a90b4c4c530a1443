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

This attack needs BoTorch (the extra ``bayes``) to fit the Gaussian process. It thinks
for some milliseconds about every query of every image, more the more queries it has seen: it is
meant for a few hundred queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge

from brusle import rng
from brusle.attacks.base import SparseAttack
from brusle.attacks.bayes_opt.model import first_scales
from brusle.attacks.bayes_opt.region import Region, grid
from brusle.attacks.bayes_opt.search import ROUNDS, BayesOptSearch
from brusle.attacks.options import Count
from brusle.errors import InputError
from brusle.packages import need
from brusle.problems import Problems
from brusle.rows import Shared
from brusle.scores import Loss, LossOption, Meaning
from brusle.search import Search

__all__ = ["BayesOpt"]


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
    candidates: Annotated[int, Ge(ROUNDS)] = 400
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
        need("botorch", "BayesOpt", InputError)

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """No history, and a trust region of the first size."""
        n, (c, h, w), k = len(problems), problems.shape, self.pixels
        device = problems.images.device
        return BayesOptSearch(
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
