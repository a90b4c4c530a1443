"""PixelBandit: a sparse attack that models what pixels do to the scores. It is brusle's own.

BruSLe learns from the sign of each change, PixelBandit from its size. Around a mask, a set of B
elements (pixel, colour), the effects of elements on the log-odds are nearly additive, and alike for
neighbours and for similar colours. So the score is modelled as a sum of effects with a
Gaussian-process prior. Every round draws effects from the posterior (Thompson sampling), takes
elements out of the best mask without which it would be best, and puts in those elsewhere that
promise most. What was tried in vain is not tried again before the best mask changes.

In small images the model is one of whole masks, in large ones one of swaps. Either way a query
stays as cheap as the first: only the last ``memory`` observations are remembered, and the inverse
of their covariance is updated in place when one replaces another.

In the order in which to read them:

* `elements`: pixels with their colours, which all else counts in;
* `prior`: what is known of effects before any is seen;
* `log_odds`: what the victim's scores mean;
* `memory`, `posterior`: what was observed, and what follows from it;
* `best`: the best mask, and what was tried in vain;
* `masks`, with `crowd` and `residual`: the model and the proposals in small images;
* `swaps`: those in large ones;
* `search`: one round;
* `effects`: what it expects of every pixel, for people to look at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt
from torch import Tensor

from brusle import rng
from brusle.attacks.base import SparseAttack
from brusle.attacks.options import Count
from brusle.attacks.pixel_bandit import masks, swaps
from brusle.attacks.pixel_bandit.best import Best
from brusle.attacks.pixel_bandit.log_odds import LogOdds
from brusle.attacks.pixel_bandit.masks import MaskProposals
from brusle.attacks.pixel_bandit.prior import Prior
from brusle.attacks.pixel_bandit.search import Bandit, Proposals
from brusle.attacks.pixel_bandit.swaps import SwapProposals
from brusle.lazy import submodules
from brusle.problems import Problems
from brusle.scores import Loss, Meaning
from brusle.search import Behaviour

__getattr__ = submodules(__name__)

__all__ = ["Bandit", "PixelBandit"]


@dataclass(frozen=True)
class PixelBandit(SparseAttack):
    """Thompson sampling of the effects of pixels.

    Attributes:
        pixels: most pixels that may differ from the original.
        queries: most queries per image.
        initial: random masks to begin with.
        length: over how many pixels effects are alike; None is an eighth of the longer side.
        decay: in small images, how fast the number of swapped elements falls to one.
        memory: observations that the model remembers; None is 100 in small images and 300 in large.
    """

    initial: Count = 2
    length: Annotated[float, Gt(0)] | None = None
    decay: Annotated[float, Gt(0)] = 0.2
    memory: Annotated[int, Ge(2)] | None = None

    @property
    def behaviour(self) -> Behaviour:
        """A warm start takes the place of all random masks."""
        return Behaviour(resumes_at=self.initial - 1, believes="effect")

    def loss_for(self, targeted: bool, meaning: Meaning) -> Loss:
        """Cross-entropy, which falls as the log-odds rise; the margin on lists of labels."""
        return meaning.loss("auto", "ce")

    def prior_of(self, problems: Problems) -> Prior:
        """What is known of the effects of pixels in images of this shape."""
        c, h, w = problems.shape
        return Prior.of(h, w, c, self.length or max(h, w) / 8, problems.images.device)

    def start(self, problems: Problems, seed: int, restart: int) -> Bandit:
        """Nothing is known yet but the prior."""
        prior, stream = self.prior_of(problems), rng.streams(seed, problems.ids, restart)
        best = Best.unknown(prior, len(problems), self.pixels)
        return Bandit(
            self.initial,
            prior,
            problems.flat_images,
            stream,
            LogOdds.of(problems),
            best,
            new=best.mask.clone(),
            proposals=self._proposals(prior, problems.flat_images, stream),
        )

    def _proposals(self, prior: Prior, images: Tensor, stream: Tensor) -> Proposals:
        """An image is small if every pixel is a cell of its own."""
        if prior.side > 1:
            slots = min(self.memory or swaps.MEMORY, self.queries)
            return SwapProposals.start(prior, stream, slots, self.pixels)
        slots = min(self.memory or masks.MEMORY, self.queries)
        options = (self.pixels, self.initial, self.decay)
        return MaskProposals.start(prior, images, slots, *options)
