"""PixelBandit in small images, where every pixel has its own effects: a model of whole masks.

    f(mask) = constant + sum of w(pixel, colour) / crowd(pixel, mask) + residual

The crowd counts the elements of the mask that are near, each by exp(-distance / reach), itself
included: pixels that stand together do little more than one of them alone, so what they do is
shared out among them. The residual is what this gets wrong; it is alike for masks that share many
elements. In a draw it comes from random features instead of a Cholesky factor: a product of random
signs with mean mu over the elements of a mask has the covariance mu^(2 (B - shared)), which is the
residual's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.pixel_bandit.prior import Prior
from brusle.attacks.pixel_bandit.search import Bandit
from brusle.problems import Problems
from brusle.rng import Purpose
from brusle.search import Feedback

if TYPE_CHECKING:
    from brusle.attacks.pixel_bandit import PixelBandit

_MEMORY = 100  # observations, if nothing else is said
_CONSTANT = 100.0  # prior variance of the constant, in squared scales of an effect
_RESIDUAL_SHARE, _RESIDUAL_REACH = 0.1, 0.6  # its variance and its reach, in pixel budgets
_NOISE = 0.05  # variance of what no model explains
_LEVELS = (_NOISE, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # it may have if the victim is randomised
_REVIEW = 16  # queries between choices of one of them
_FEATURES = 128  # signs that a residual is drawn from


@dataclass
class MaskBandit(Bandit):
    """The state of the search; an observation is a mask, its elements weighted by their shares."""

    scale: Tensor  # (n, k, pixels): prior scales
    parity: Tensor  # (n, slots, features): products of random signs
    first: Tensor  # (n, classes): scores of the first mask; all others are relative to it
    base: Tensor  # (n, classes): sum of the scores of the random masks
    counted: Tensor  # (n, 1): how many these are
    noise: Tensor  # (n,): variance of the noise of observations

    @classmethod
    def start(
        cls, settings: PixelBandit, prior: Prior, problems: Problems, seed: int, restart: int
    ) -> MaskBandit:
        """Nothing is known yet."""
        slots = min(settings.memory or _MEMORY, settings.queries)
        fields = cls.blank(settings, prior, problems, seed, restart)
        remembered = cls.memory(problems, prior, slots, settings.pixels)
        # -1 is no colour: elements of empty slots are nowhere
        remembered["colour"] -= 1
        pixels = torch.arange(problems.flat_images.shape[1], device=problems.images.device)
        return cls(
            **fields,
            **remembered,
            scale=prior.scales(problems.flat_images, pixels.expand(len(problems), -1)),
            parity=remembered["z"].new_zeros(len(problems), slots, _FEATURES).float(),
            first=torch.zeros_like(fields["best_z"]),
            base=torch.zeros_like(fields["best_z"]),
            counted=torch.zeros_like(fields["floor"]),
            noise=torch.full_like(fields["loss"], _NOISE),
        )

    def _propose(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Take out of the best mask what it misses least, and put in what promises most."""
        n, b = self.best_pixel.shape
        effect, learned = self._draw(step)
        own, others = self._familiar(learned)
        worst = (self._shares(effect) + own).argsort(dim=1, stable=True)
        pixel, colour = self.best_pixel.gather(1, worst), self.best_colour.gather(1, worst)
        swaps = self._swaps(step)
        swapped = torch.arange(b, device=swaps.device) < swaps[:, None]
        candidates = torch.arange(self.prior.count, device=swaps.device).expand(n, -1)
        value = self._beside(effect, pixel, colour, ~swapped) + others
        worth, paint = self._without(value, candidates, pixel, colour, swapped).max(1)
        top, at = worth.topk(min(int(swaps.max()), worth.shape[1]), 1)
        found = torch.zeros(n, b - at.shape[1], dtype=torch.int64, device=at.device)
        at, top = torch.cat([at, found], 1), torch.cat([top, found - torch.inf], 1)
        take = swapped & (top > -torch.inf)
        return torch.where(take, at, pixel), torch.where(take, paint.gather(1, at), colour)

    def _draw(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """A draw of all effects, ``(n, k, cells)``, and the weights of the mean."""
        numbers = self._numbers(step, Purpose.BANDIT_FIELD, self.prior.fields * self.prior.count)
        drawn = self.prior.loading @ self.prior.draw(numbers)
        residual = self._numbers(step, Purpose.BANDIT_RESIDUAL, _FEATURES)
        share = _RESIDUAL_SHARE * self.settings.pixels / _FEATURES
        wrong = math.sqrt(share) * (self.parity @ residual[:, :, None])[:, :, 0]
        numbers = self._numbers(step, Purpose.BANDIT_NOISE, self.z.shape[1])
        noise = self.noise.sqrt()[:, None] * numbers
        weight, scale, learned = self._weights(self._look_up(drawn) + wrong + noise)
        return self._posterior(weight) + scale[:, :, None] * drawn, learned

    def _observed(self) -> Tensor:
        """Scores relative to random masks."""
        random = (self.base / self.counted)[:, None]
        return ((self.z - random) @ self._direction())[:, :, 0] * self.known

    def _shares(self, effect: Tensor) -> Tensor:
        """``(n, B)``: what the best mask would lose with each of its elements.

        Its own part of the sum, less what the others of its crowd gain when it is gone. The gain
        of one is w / (crowd - nearness) - w / crowd; its denominator is taken as
        crowd * max(crowd - 1, 1), exact for two of a kind, so that a sum over cells does.
        """
        pixel = self.best_pixel
        drawn = self._effects(effect, pixel, self.best_colour)
        crowd = self._crowd(pixel)
        part = drawn / (crowd * (crowd - 1).clamp_min(1))
        seen = self.prior.at(self.prior.nearby(part[:, None], pixel), pixel)[:, 0]
        return drawn / crowd - (seen - part)

    def _beside(self, effect: Tensor, pixel: Tensor, colour: Tensor, kept: Tensor) -> Tensor:
        """``(n, k, cells)``: what effects are worth beside the elements that are kept.

        A share of the effect, less what the crowd that it joins loses; as in `_shares`, one
        denominator, crowd * (crowd + 1), serves all distances.
        """
        value = torch.where(self.scale > 0, effect * self.scale, self.scale)
        stays = kept.float()
        crowds = self.prior.nearby(stays[:, None], pixel)
        crowd = self.prior.at(crowds, pixel)[:, 0].clamp_min(1)
        part = stays * self._effects(effect, pixel, colour) / (crowd * (crowd + 1))
        return value / (1 + crowds) - self.prior.nearby(part[:, None], pixel)

    def _crowd(self, pixel: Tensor) -> Tensor:
        """``(n, B)``: how many pixels stand together with each, itself included."""
        alone = torch.ones_like(pixel, dtype=torch.float32)[:, None]
        return self.prior.at(self.prior.nearby(alone, pixel), pixel)[:, 0]

    def _familiar(self, learned: Tensor) -> tuple[Tensor, Tensor]:
        """What the residual says of elements that were seen before, on average.

        Returns:
            ``(n, B)``: of the elements of the best mask. Without one, it is less alike with the
            masks that have it, too.
            ``(n, k, cells)``: of all others.
        """
        n, _, b = self.pixel.shape
        place = self._places(self.best_pixel, self.best_colour)
        within = place >= 0
        step = math.exp(-1 / (_RESIDUAL_REACH * b))
        weight = (learned * self._kinship(within.sum(2)))[:, :, None].expand(-1, -1, b)
        own = learned.new_zeros(n, b)
        known = torch.where(within, (1 - step) * weight, 0.0).view(n, -1)
        own.scatter_add_(1, place.clamp_min(0).view(n, -1), known)
        k, cells = self.tried.shape[1:]
        others = learned.new_zeros(n, k * cells)
        known = torch.where(within, 0.0, (1 / step - 1) * weight).view(n, -1)
        others.scatter_add_(1, self.effect.view(n, -1), known)
        return own, others.view(n, k, cells)

    def _kinship(self, shared: Tensor) -> Tensor:
        """Covariance of the residuals of masks that share so many elements."""
        b = self.settings.pixels
        return _RESIDUAL_SHARE * b * torch.exp((shared - b).float() / (_RESIDUAL_REACH * b))

    def _swaps(self, step: Tensor) -> Tensor:
        """``(n,)``: how many elements change; it falls from all to one."""
        b, age = self.settings.pixels, (step - self.settings.initial).clamp_min(0)
        falling = torch.exp(-self.settings.decay * age.double())
        return (1 + (b - 1) * falling).round().long()

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """With noise, the best mask is not the one with the best answer, but the likeliest one."""
        super().tell(step, feedback)
        if not feedback.randomised:
            return
        self._review_noise(step + 1)
        y = self._observed()
        added = (self.noise - _NOISE)[:, None] * (self.inverse @ y[:, :, None])[:, :, 0]
        rows = torch.arange(len(y), device=y.device)
        slot = (y - added).masked_fill(self.known == 0, -torch.inf).argmax(1)
        pixel, colour = self.pixel[rows, slot], self.colour[rows, slot]
        same = ((pixel == self.best_pixel) & (colour == self.best_colour)).all(1)
        self.best_pixel, self.best_colour = pixel, colour
        self.best_z = self.z[rows, slot] + self.first
        self.tried = self.tried & same[:, None, None]

    def _review_noise(self, step: Tensor) -> None:
        """Now and then, take the noise under which the observations are likeliest.

        Only for victims that say they are randomised: what the model gets wrong about others looks
        like noise, too, but comes again in the same place.
        """
        rows = (step % _REVIEW == 0).nonzero()[:, 0]
        if not len(rows):
            return
        here = self.pick(rows)
        y, known = here._observed(), here.known
        bare = here.covariance - torch.diag_embed(here.noise[:, None] * known)
        likeliest, noise = torch.full_like(here.noise, -torch.inf), here.noise
        for level in _LEVELS:
            root = torch.linalg.cholesky(bare + torch.diag_embed(level * known + 1 - known))
            fit = (y * torch.cholesky_solve(y[:, :, None], root)[:, :, 0]).sum(1)
            spread = root.diagonal(dim1=1, dim2=2).log().sum(1)
            likely = -0.5 * known.sum(1) * fit.clamp_min(1e-12).log() - spread
            noise = torch.where(likely > likeliest, level, noise)
            likeliest = torch.maximum(likely, likeliest)
        self.noise[rows] = noise
        self.covariance[rows] = bare + torch.diag_embed(noise[:, None] * known)
        self._invert(rows)

    def _learn(self, step: Tensor, z: Tensor, better: Tensor) -> None:
        """The mask goes into the next slot; random ones also count for the constant."""
        new = (self.counted == 0).double()
        self.first = self.first + new * (z - self.first)
        random = torch.maximum(self.initial(step).double()[:, None], new)
        self.base = self.base + random * (z - self.first)
        self.counted = self.counted + random
        rows, slot = self._free_slot(step)
        scale = self.prior.scale(self.images, self.new_pixel, self.new_colour)
        size = scale / self._crowd(self.new_pixel)
        effect = self._index(self.new_pixel, self.new_colour)
        self.pixel[rows, slot], self.colour[rows, slot] = self.new_pixel, self.new_colour
        self.effect[rows, slot], self.size[rows, slot] = effect, size
        self.z[rows, slot] = z - self.first
        self.parity[rows, slot] = self._signs()
        self.known[rows, slot] = 1.0
        alike = self._look_up(self._alike(effect, size))
        shared = (self._places(self.new_pixel, self.new_colour) >= 0).sum(2)
        alike = (alike + self._kinship(shared)).double() + _CONSTANT
        self._add(step, slot, alike, self.noise)

    def _signs(self) -> Tensor:
        """``(n, features)``: products of the random signs of the elements of the new mask."""
        elements = self.new_pixel * len(self.prior.colours) + self.new_colour
        stream = rng.streams(0, elements.flatten())
        mean = math.exp(-1 / (2 * _RESIDUAL_REACH * self.settings.pixels))
        negative = rng.bits(stream, 0, Purpose.BANDIT_SIGN, _FEATURES) >= int(
            (1 + mean) / 2 * 2**31
        )
        odd = negative.view(*elements.shape, _FEATURES).sum(1) % 2
        return 1.0 - 2.0 * odd.float()
