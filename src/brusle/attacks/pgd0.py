"""PGD0 (Croce and Hein, ICCV 2019): projected gradient descent on at most k pixels.

A step along the gradient changes all pixels; the projection takes back all but k of them. For an
image x, a point z after the step and its nearest point b in the box [0, 1], keeping a pixel
brings the result closer to z by ||z - x||^2 - ||z - b||^2, summed over the channels of the pixel.
So the k pixels with the largest such gain keep their colour b, and all others go back to x.

As in the authors' code, gradients are divided by their l1 norm, and a run starts from uniformly
random colours, projected in the same way. Different here:

* Iterates are rounded to 8-bit levels, and the gradient is taken at the rounded image.
* The number of runs is not an option: runs follow one another as long as there are queries. A run
  that has arrived at a fixed point ends early, for it would ask the same question again.
* The authors' steps of 120000 / 255 and of half that length, made for CIFAR-10, are taken per
  colour value, so that images of other sizes have steps of the same length per value. Long steps
  exchange pixels more readily, which helped untargeted attacks on few pixels; targeted attacks did
  better with the short ones.
* Equal gains are decided by position and not by a tiny noise, so that results are reproducible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt
from torch import Tensor

from brusle import rng
from brusle.attacks.base import SparseAttack
from brusle.attacks.options import Count
from brusle.problems import Candidates, Dense, Edits, Problems, to_levels
from brusle.rng import Purpose
from brusle.scores import Loss, LossOption, Meaning
from brusle.search import Behaviour, Feedback, Search

_STEP_PER_VALUE = 120000 / 255 / (3 * 32 * 32)


def project(z: Tensor, original: Tensor, pixels: int) -> Tensor:
    """The nearest 8-bit images that differ from the originals in at most so many pixels.

    Args:
        z: ``(n, h * w, c)``, any values.
        original: ``(n, h * w, c)`` in [0, 1].
        pixels: the budget.
    """
    boxed = z.clamp(0, 1)
    # (z - x)^2 - (z - b)^2, without the loss of digits that large z would bring
    gain = ((boxed - original) * (2 * z - boxed - original)).sum(2)
    kept = rng.winners(-gain, pixels)
    chosen = torch.zeros_like(gain, dtype=torch.bool).scatter_(1, kept, True)
    return torch.where(chosen[:, :, None], to_levels(boxed), original)


@dataclass(frozen=True)
class PGD0(SparseAttack):
    """Projected gradient descent with random starts; a white-box attack.

    Attributes:
        pixels: the budget k, most pixels that may differ from the original.
        queries: most queries per image, each one forward and one backward pass.
        steps: most queries of one run, its random start included; then a new run begins.
        step_size: l1 length of a step, for images in [0, 1]; None means 120000 / 255 untargeted
            and half of it targeted, for 3072 colour values (CIFAR-10) and in proportion for other
            sizes.
        loss: ``"auto"`` is the cross-entropy, as in the authors' code.
    """

    steps: Count = 50
    step_size: Annotated[float, Gt(0)] | None = None
    loss: LossOption = "auto"

    @property
    def behaviour(self) -> Behaviour:
        """A white-box attack, whose projection may keep any pixels."""
        return Behaviour(needs="gradients", dense=True)

    def loss_for(self, targeted: bool, meaning: Meaning) -> Loss:
        """The authors', cross-entropy."""
        return meaning.loss(self.loss, "ce")

    def length_of_step(self, targeted: bool, values: int) -> float:
        """The step size as given, or the default for the goal and the number of colour values."""
        if self.step_size is not None:
            return self.step_size
        return _STEP_PER_VALUE * values * (0.5 if targeted else 1.0)

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Draw the first random start."""
        original = problems.flat_images
        search = _PGD0Search(
            settings=self,
            step_size=self.length_of_step(problems.targets is not None, math.prod(problems.shape)),
            stream=rng.streams(seed, problems.ids, restart),
            age=torch.zeros_like(problems.labels),
            original=original,
            candidate=original.clone(),
        )
        search.begin(torch.arange(len(problems), device=original.device), search.age)
        return search


@dataclass
class _PGD0Search(Search):
    """The state of PGD0: the iterate, which is the next candidate."""

    settings: PGD0
    step_size: float
    stream: Tensor
    age: Tensor  # (n,) queries of the present run
    original: Tensor  # (n, h * w, c)
    candidate: Tensor  # (n, h * w, c)

    def initial(self, step: Tensor) -> Tensor:
        """``(n,)``: the first candidate is a random start."""
        return step == 0

    def begin(self, rows: Tensor, step: Tensor) -> None:
        """New runs for the problems ``rows``, at ``step``."""
        original = self.original[rows]
        n, pixels, channels = original.shape
        numbers = rng.bits(self.stream[rows], step, Purpose.PGD0_START, pixels * channels)
        noise = rng.uniform(numbers).float().view(n, pixels, channels)
        self.candidate[rows] = project(noise, original, self.settings.pixels)
        self.age[rows] = 0

    def ask(self, step: Tensor) -> Dense:
        """The iterate."""
        return Dense(self.candidate)

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Step and project; begin a new run where the present one is over."""
        assert feedback.gradient is not None
        moved = self.candidate - self._step(feedback.gradient)
        projected = project(moved, self.original, self.settings.pixels)
        self.age = self.age + 1
        fixed_point = (projected == self.candidate).flatten(1).all(1)
        self.candidate = projected
        over = ((self.age >= self.settings.steps) | fixed_point).nonzero()[:, 0]
        self.begin(over, step[over] + 1)

    def _step(self, gradient: Tensor) -> Tensor:
        """The gradient at the length of a step, in the l1 norm."""
        slope = gradient.double()  # in which the smallest float32 has a reciprocal
        length = slope.abs().sum((1, 2), keepdim=True).clamp_min(1e-300)
        return (slope / length * self.step_size).float()

    def resume(self, edits: Edits) -> Candidates:
        """The first run starts at these edits."""
        index = edits.index[:, :, None].expand(-1, -1, self.original.shape[2])
        self.candidate = self.original.scatter(1, index, edits.colour)
        return Dense(self.candidate)
