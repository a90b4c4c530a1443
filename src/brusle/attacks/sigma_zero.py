"""sigma-zero (Cina et al., ICLR 2025): gradient descent on a smooth count of changed pixels.

The perturbation delta starts at 0 and follows the gradient of

    max(margin, 0) + (1 / pixels) * sum over pixels p of ||delta_p||^2 / (||delta_p||^2 + sigma),

where the margin is that of the logits and the second term is nearly the number of changed pixels
for a small sigma. While the image is not adversarial, nearly all of the gradient is the first
term's; once it is, only the second is left, and the smallest changes shrink first. The gradient is
divided by its largest entry, so the step size eta, which falls from ``step_size`` to a tenth of it
along a cosine, is the largest move of a colour value. After a step, values are cut back to
[0, 1] and pixels that changed by less than a threshold tau go back to the original. The threshold
rises while the image is adversarial and falls while it is not: the search walks along the
boundary, with fewer and fewer pixels.

The authors count colour values, here pixels are counted. That changes three places, which are as
in the paper for images with one channel: the fraction has the squared norm of a pixel in place of
the square of a value, their mean is over pixels, and a pixel goes back when all of its values
have changed by less than the threshold. Candidates are rounded to 8-bit levels, and the gradient
of the margin is taken there; what is rounded off is not forgotten.

The authors' code gives the normalised gradient to Adam (``adam=True``). Then the first step moves
every value by the full step size, whatever its gradient, and the search comes down from a change
of the whole image; that takes more queries. The authors attack without a target; a target only
changes the margin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from brusle import rng
from brusle.attacks.base import SparseAttack
from brusle.problems import Dense, Problems, to_levels
from brusle.rng import Purpose
from brusle.scores import Loss, Meaning
from brusle.search import Behaviour, Feedback, Search

_NOISE = 0.1  # largest change of a value in the random start of a restart
_LAST_ETA = 0.1  # the step size at the end, as a share of that at the start
_BETA_1, _BETA_2 = 0.9, 0.999  # Adam's


@dataclass(frozen=True)
class SigmaZero(SparseAttack):
    """A minimum-norm white-box attack: it looks for fewer and fewer pixels.

    It draws no random numbers; only restarts begin with a little noise. The number of pixels does
    not guide the search, it only ends it: with ``pixels=1`` all queries are used.

    Attributes:
        pixels: the budget; the search ends when no more pixels than that are changed.
        queries: most queries per image, each one forward and one backward pass; the step size
            falls over so many.
        step_size: of the first step, eta_0 in the paper; images are in [0, 1].
        sigma: how smooth the count is; smaller is closer to the true count.
        threshold: the first threshold, tau_0.
        threshold_rate: by how much the threshold moves, as a share of the step size.
        adam: take the steps of Adam, as the authors' code does.
    """

    step_size: Annotated[float, Gt(0)] = 1.0
    sigma: Annotated[float, Gt(0)] = 1e-3
    threshold: Annotated[float, Ge(0), Le(1)] = 0.3
    threshold_rate: Annotated[float, Gt(0)] = 0.01
    adam: bool = False

    @property
    def behaviour(self) -> Behaviour:
        """A white-box attack that walks along the boundary, towards fewer pixels."""
        return Behaviour(needs="gradients", dense=True, shrinks=True)

    def loss_for(self, targeted: bool, meaning: Meaning) -> Loss:
        """The paper's, the margin of logits."""
        return meaning.loss("auto", "logit-margin")

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Begin at the original; a restart begins at a little noise."""
        original = problems.flat_images
        delta = torch.zeros_like(original)
        if restart:
            stream = rng.streams(seed, problems.ids, restart)
            numbers = rng.bits(stream, 0, Purpose.SIGMA_ZERO_START, math.prod(problems.shape))
            noise = (2 * rng.uniform(numbers).float() - 1).view_as(original) * _NOISE
            delta = (original + noise).clamp(0, 1) - original
        return _SigmaZeroSearch(
            settings=self,
            original=original,
            delta=delta,
            tau=torch.full_like(original[:, 0, 0], self.threshold),
            mean=torch.zeros_like(original),
            square=torch.zeros_like(original),
        )


@dataclass
class _SigmaZeroSearch(Search):
    """The state of sigma-zero."""

    settings: SigmaZero
    original: Tensor  # (n, h * w, c): x
    delta: Tensor  # (n, h * w, c): the perturbation, not rounded
    tau: Tensor  # (n,): the threshold, smallest change that a pixel may have
    mean: Tensor  # (n, h * w, c): Adam's averages of the gradient and of its square
    square: Tensor

    def initial(self, step: Tensor) -> Tensor:
        """``(n,)``: the first candidate, the original, is asked for its gradient only."""
        return step == 0

    def ask(self, step: Tensor) -> Dense:
        """The image x + delta, rounded."""
        changed = (self.delta != 0).any(2, keepdim=True)
        return Dense(torch.where(changed, to_levels(self.original + self.delta), self.original))

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """An iteration: a step of size eta, the box [0, 1], the next tau, the projection."""
        assert feedback.gradient is not None
        x, adversarial = self.original, feedback.reached
        g = self._gradient(feedback.gradient, adversarial)
        if self.settings.adam:
            g = self._adam(g, step)
        self.delta = (x + self.delta - self._eta(step)[:, None, None] * g).clamp(0, 1) - x
        change = self.settings.threshold_rate * self._eta(step + 1)
        self.tau = (self.tau + torch.where(adversarial, change, -change)).clamp(0, 1)
        self.delta = project(self.delta, self.tau)

    def _gradient(self, of_margin: Tensor, adversarial: Tensor) -> Tensor:
        """The objective's gradient at delta, divided by its largest entry."""
        sigma, pixels = self.settings.sigma, self.delta.shape[1]
        size = self.delta.square().sum(2, keepdim=True)
        g = torch.where(adversarial[:, None, None], 0.0, of_margin)
        g = g + 2 * sigma * self.delta / (size + sigma).square() / pixels
        return g / g.abs().amax((1, 2), keepdim=True).clamp_min(1e-12)

    def _adam(self, g: Tensor, step: Tensor) -> Tensor:
        """What Adam makes of the gradient."""
        self.mean = _BETA_1 * self.mean + (1 - _BETA_1) * g
        self.square = _BETA_2 * self.square + (1 - _BETA_2) * g.square()
        # averages that start at 0 are too small at first
        steps = (step + 1).double()[:, None, None]
        mean = self.mean / (1 - _BETA_1**steps).float()
        square = self.square / (1 - _BETA_2**steps).float()
        return mean / (square.sqrt() + 1e-8)

    def _eta(self, step: Tensor) -> Tensor:
        """``(n,)`` the step size: a cosine from eta_0 to a tenth of it."""
        progress = step.double() / self.settings.queries
        share = _LAST_ETA + (1 - _LAST_ETA) * (1 + torch.cos(math.pi * progress)) / 2
        return (self.settings.step_size * share).float()


def project(delta: Tensor, tau: Tensor) -> Tensor:
    """The projection Pi_tau: pixels whose values have all changed by less than tau go back.

    Args:
        delta: ``(n, h * w, c)``.
        tau: ``(n,)``.
    """
    small = delta.abs().amax(2) < tau[:, None]
    return delta.masked_fill(small[:, :, None], 0.0)
