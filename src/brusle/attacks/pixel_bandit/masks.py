"""PixelBandit in small images, where every pixel has its own effects: a model of whole masks.

    f(mask) = constant + sum of w(pixel, colour) / crowd(pixel, mask) + residual + noise

The effects w are what `prior` says, the `crowd` shares them out among pixels that stand together,
and the `residual` is what this gets wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brusle.attacks.pixel_bandit.best import Answer, Best
from brusle.attacks.pixel_bandit.crowd import beside, crowd, without
from brusle.attacks.pixel_bandit.elements import Chance, Elements
from brusle.attacks.pixel_bandit.memory import Memory
from brusle.attacks.pixel_bandit.posterior import Posterior, log_likelihood
from brusle.attacks.pixel_bandit.prior import Prior
from brusle.attacks.pixel_bandit.residual import Residual
from brusle.rng import Purpose
from brusle.rows import Rows

MEMORY = 100  # masks that are remembered, if nothing else is said
_CONSTANT = 100.0  # prior variance of the constant, in squared scales of an effect
_NOISE = 0.05  # variance of what no model explains
_LEVELS = (_NOISE, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # it may have if the victim is randomised
_REVIEW = 16  # queries between choices of one of them


@dataclass
class Constant(Rows):
    """What scores are relative to: first those of the first mask, then the mean of random ones."""

    first: Tensor  # (n, classes): scores of the first mask
    total: Tensor  # (n, classes): sum of the scores of the random masks, relative to that
    count: Tensor  # (n, 1): how many these are; the first mask is one

    @classmethod
    def like(cls, z: Tensor) -> Constant:
        """No scores of this shape are known yet."""
        return cls(torch.zeros_like(z), torch.zeros_like(z), torch.zeros_like(z[:, :1]))

    @property
    def mean(self) -> Tensor:
        """``(n, classes)``: that of the random masks, relative to the first."""
        return self.total / self.count

    def learn(self, z: Tensor, random: Tensor) -> None:
        """Scores z of masks, some of which are ``random``."""
        new = (self.count == 0).double()
        self.first = self.first + new * (z - self.first)
        counts = torch.maximum(random.double()[:, None], new)
        self.total = self.total + counts * (z - self.first)
        self.count = self.count + counts


@dataclass
class MaskModel(Rows):
    """The model of whole masks, and its posterior. An observation is a mask."""

    prior: Prior
    memory: Memory
    posterior: Posterior
    constant: Constant
    residual: Residual
    noise: Tensor  # (n,): variance of the noise of observations

    @classmethod
    def start(cls, prior: Prior, n: int, slots: int, b: int) -> MaskModel:
        """Nothing is known yet."""
        memory = Memory.empty(prior, n, slots, b)
        constant, residual = Constant.like(memory.z[:, 0]), Residual.empty(memory)
        posterior = Posterior.empty(n, slots, memory.z.device)
        noise = torch.full_like(memory.z[:, 0, 0], _NOISE)
        return cls(prior, memory, posterior, constant, residual, noise)

    def observed(self, slope: Tensor) -> Tensor:
        """``(n, slots)``: scores relative to random masks, as numbers; 0 where there are none."""
        z = self.memory.z - self.constant.mean[:, None]
        return (z @ slope)[:, :, 0] * self.posterior.known

    def draw(self, chance: Chance, slope: Tensor) -> tuple[Tensor, Tensor]:
        """A draw of all effects from the posterior.

        Args:
            chance: of this round.
            slope: ``(n, classes, 1)`` of the log-odds.

        Returns:
            ``(n, k, cells)`` effects of scale 1, and the ``(n, slots)`` weights of their mean.
        """
        prior = self.prior
        numbers = chance.numbers(Purpose.BANDIT_FIELD, prior.fields * prior.count)
        effects = prior.loading @ prior.draw(numbers)
        residual = self.residual.draw(chance)
        numbers = chance.numbers(Purpose.BANDIT_NOISE, self.memory.slots)
        noise = self.noise.sqrt()[:, None] * numbers
        said = self.memory.sums(effects) + residual + noise
        weights = self.posterior.weights(self.observed(slope), said)
        effects = self.memory.effects(weights.draw) + weights.scale[:, :, None] * effects
        return effects, weights.mean

    def learn(self, step: Tensor, images: Tensor, answer: Answer) -> None:
        """The mask goes into the next slot; random ones also count for the constant."""
        mask, slot = answer.mask, step % self.memory.slots
        self.constant.learn(answer.z, answer.random)
        size = self.prior.scale(images, mask) / crowd(self.prior, mask.pixel)
        self.memory.put(slot, mask, size, answer.z - self.constant.first)
        self.residual.put(slot, mask)
        alike = self.memory.covariance(mask, size)
        shared = (self.memory.places(mask) >= 0).sum(2)
        alike = (alike + self.residual.covariance(shared)).double() + _CONSTANT
        self.posterior.learn(step, torch.ones_like(self.noise), alike, self.noise)

    def likeliest(self, slope: Tensor) -> tuple[Elements, Tensor]:
        """The mask of the best posterior mean among those that are remembered, and its scores."""
        y = self.observed(slope)
        wrong = (self.noise - _NOISE)[:, None] * self.posterior.mean(y)
        slot = (y - wrong).masked_fill(self.posterior.known == 0, -torch.inf).argmax(1)
        rows, elements = torch.arange(len(y), device=y.device), self.memory.elements
        mask = Elements(elements.pixel[rows, slot], elements.colour[rows, slot])
        return mask, self.memory.z[rows, slot] + self.constant.first

    def review_noise(self, asked: Tensor, slope: Tensor) -> None:
        """Now and then, take the noise under which the observations are likeliest.

        Only for victims that say they are randomised: what the model gets wrong about others looks
        like noise, too, but comes again in the same place.

        Args:
            asked: ``(n,)`` queries so far.
            slope: ``(n, classes, 1)`` of the log-odds.
        """
        rows = (asked % _REVIEW == 0).nonzero()[:, 0]
        if not len(rows):
            return
        y, known = self.observed(slope)[rows], self.posterior.known[rows]
        noise = self.noise[rows]
        bare = self.posterior.covariance[rows] - torch.diag_embed(noise[:, None] * known)
        highest = torch.full_like(noise, -torch.inf)
        for level in _LEVELS:
            apart = bare + torch.diag_embed(level * known + 1 - known)
            likely = log_likelihood(y, apart, known)
            noise = torch.where(likely > highest, level, noise)
            highest = torch.maximum(likely, highest)
        self.noise[rows] = noise
        self.posterior.revise(rows, bare + torch.diag_embed(noise[:, None] * known))


@dataclass
class MaskProposals(Rows):
    """The best mask with some elements swapped; how many falls from all to one."""

    model: MaskModel
    initial: int  # random masks to begin with
    decay: float  # how fast the number of swaps falls
    scale: Tensor  # (n, k, pixels): prior scales

    @classmethod
    def start(
        cls, prior: Prior, images: Tensor, slots: int, b: int, initial: int, decay: float
    ) -> MaskProposals:
        """For the search in ``images``, ``(n, pixels, c)``."""
        model = MaskModel.start(prior, len(images), slots, b)
        everywhere = torch.arange(prior.pixels, device=images.device).expand(len(images), -1)
        return cls(model, initial, decay, prior.scales(images, everywhere))

    def propose(self, chance: Chance, images: Tensor, best: Best, slope: Tensor) -> Elements:
        """Take out of the best mask what it misses least, and put in what promises most."""
        model, prior = self.model, self.model.prior
        effects, weight = model.draw(chance, slope)
        own, others = model.residual.familiar(model.memory, best.mask, weight)
        drawn = prior.of_elements(effects, images, best.mask)
        missed = without(prior, best.mask.pixel, drawn) + own
        order = missed.argsort(dim=1, stable=True)
        mask, drawn = best.mask.gather(order), drawn.gather(1, order)
        swaps = self.swaps(chance.step, order.shape[1])
        swapped = torch.arange(order.shape[1], device=order.device) < swaps[:, None]
        alone = torch.where(self.scale > 0, effects * self.scale, self.scale)
        value = beside(prior, mask.pixel, drawn, ~swapped, alone) + others
        everywhere = torch.arange(prior.pixels, device=order.device).expand(len(order), -1)
        worth, paint = best.admit(value, everywhere, mask, swapped).max(1)
        top, pixel = worth.topk(int(swaps.max()), 1)
        take = swapped[:, : top.shape[1]] & (top > -torch.inf)
        mask.exchange(take, Elements(pixel, paint.gather(1, pixel)))
        return mask

    def learn(self, step: Tensor, images: Tensor, answer: Answer, best: Best) -> None:
        """What the model learns is all there is to it."""
        self.model.learn(step, images, answer)

    def reconsider(self, asked: Tensor, best: Best, slope: Tensor) -> None:
        """With noise, the best mask is not the one with the best answer, but the likeliest one.

        Arguments as in `MaskModel.review_noise`.
        """
        self.model.review_noise(asked, slope)
        best.move(*self.model.likeliest(slope))

    def swaps(self, step: Tensor, b: int) -> Tensor:
        """``(n,)``: how many elements change, 1 + (B - 1) exp(-decay t) in round t."""
        age = (step - self.initial).clamp_min(0)
        falling = torch.exp(-self.decay * age.double())
        return (1 + (b - 1) * falling).round().long()
