"""PixelBandit in large images: a model of what swaps do to the best mask.

    f(best mask with some elements swapped) - f(best mask)
        = sum of w over what is put in - sum of w over what is taken out - toll * swaps + noise

    w(pixel, colour) = field(cell of the pixel, colour) + own(pixel, colour)

Around a mask of hundreds of pixels, effects add up almost perfectly (on EfficientNet-Lite0 with 500
pixels in place, the effects of 10 swaps predict their sum with a correlation of 0.9 to 0.98, those
of 30 with 0.85 to 0.94), and an observation has only as many elements as were swapped, not as many
as the mask. So hundreds of observations can be remembered. A cell of neighbouring pixels shares one
field; the own part is what an element does beyond that. The toll is there because the best mask was
chosen for being good, so that most swaps do harm.

How many elements are swapped follows success: it grows when a swap was better and shrinks when not,
so that about one in five is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.pixel_bandit.best import Answer, Best, unless_all
from brusle.attacks.pixel_bandit.elements import Chance, Elements
from brusle.attacks.pixel_bandit.memory import Memory, total
from brusle.attacks.pixel_bandit.posterior import Posterior
from brusle.attacks.pixel_bandit.prior import Prior
from brusle.rng import Purpose
from brusle.rows import Rows

MEMORY = 300  # observations that are remembered, if nothing else is said
_MOST = 64  # swaps at once
_OWN = 0.3  # prior variance of the own part, in squared scales of an effect
_TOLL = 1.0  # and of the toll
_BENT, _NOISE = 0.01, 0.02  # variance of the noise: by the square of the swaps, and for any number
_GROWTH, _SUCCESS = 1.5, 0.2  # of the number of swaps at a success, and the share of these
_BASIS = 16  # draws from the prior that all others are mixed of; at most 31


@dataclass
class Swaps(Rows):
    """Some elements taken out of a mask and as many put in, by turns."""

    elements: Elements  # (n, m)
    weight: Tensor  # (n, m): -1 out, 1 in, or 0 for none

    @classmethod
    def of(cls, out: Elements, into: Elements, which: Tensor) -> Swaps:
        """Each of ``out`` for one of ``into``, ``(n, m / 2)``, if ``which``."""
        pixel = torch.stack([out.pixel, into.pixel], 2).flatten(1)
        colour = torch.stack([out.colour, into.colour], 2).flatten(1)
        weight = torch.stack([-which.float(), which.float()], 2).flatten(1)
        return cls(Elements(pixel, colour), weight)

    @property
    def count(self) -> Tensor:
        """``(n,)``: how many were put in."""
        return self.weight.clamp_min(0).sum(1).double()


@dataclass
class SwapModel(Rows):
    """The model of swaps, and its posterior. An observation is some swaps.

    A draw from the prior is a mix of a few that never change, so that what they say of an
    observation is looked up only once.
    """

    prior: Prior
    memory: Memory
    posterior: Posterior
    count: Tensor  # (n, slots): how many swaps an observation has
    basis: Tensor  # (n, draws, fields * cells): draws from the prior of the fields
    said: Tensor  # (n, slots, 2 * draws): what they say of the observations, and own parts

    @classmethod
    def start(cls, prior: Prior, stream: Tensor, slots: int, most: int) -> SwapModel:
        """Nothing is known yet; ``most`` swaps at once."""
        n = len(stream)
        memory = Memory.empty(prior, n, slots, 2 * most)
        posterior = Posterior.empty(n, slots, stream.device)
        chance = Chance(stream, torch.zeros_like(stream))
        numbers = chance.numbers(Purpose.BANDIT_RESIDUAL, _BASIS * prior.fields * prior.count)
        basis = prior.draw(numbers).view(n, _BASIS, prior.fields * prior.count)
        said = memory.size.new_zeros(n, slots, 2 * _BASIS)
        return cls(prior, memory, posterior, torch.zeros_like(posterior.known), basis, said)

    @property
    def remembered(self) -> Memory:
        """The memory, without the room for more swaps than any observation has."""
        return self.memory.narrowed(2 * int(self.count.max()))

    def observed(self, slope: Tensor) -> Tensor:
        """``(n, slots)``: changes of the scores as numbers; 0 where there are none."""
        return (self.memory.z @ slope)[:, :, 0] * self.posterior.known

    def draw(
        self, chance: Chance, images: Tensor, mask: Elements, slope: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A draw from the posterior.

        Args:
            chance: of this round.
            images: ``(n, pixels, c)``.
            mask: ``(n, B)``: elements whose own parts are drawn, too.
            slope: ``(n, classes, 1)`` of the log-odds.

        Returns:
            ``(n, k, cells)``: what the fields say of all effects, of scale 1.
            ``(n, B)``: the own parts of the elements of the mask.
        """
        n, slots = self.count.shape
        memory = self.remembered
        mix = chance.numbers(Purpose.BANDIT_FIELD, 2 * _BASIS) / math.sqrt(_BASIS)
        fields = (mix[:, None, :_BASIS] @ self.basis).view(n, self.prior.fields, -1)
        effects = self.prior.loading @ fields
        own = math.sqrt(_OWN) * (self._signs(mask) @ mix[:, _BASIS:, None])[:, :, 0]
        numbers = chance.numbers(Purpose.BANDIT_NOISE, slots + 1)
        noise = _noise(self.count).sqrt() * numbers[:, 1:]
        toll = math.sqrt(_TOLL) * self.count * numbers[:, :1]
        said = (self.said @ mix[:, :, None])[:, :, 0]
        weight, scale, _ = self.posterior.weights(self.observed(slope), said + noise + toll)
        effects = memory.effects(weight) + scale[:, :, None] * effects
        own = scale * own + _OWN * _summed(memory, mask, weight)
        return effects, own * self.prior.scale(images, mask)

    def learn(
        self, step: Tensor, images: Tensor, swaps: Swaps, change: Tensor, there: Tensor
    ) -> None:
        """Swaps and the ``(n, classes)`` change of scores go into the next slot, if ``there``."""
        slot, count = step % self.memory.slots, swaps.count
        rows = torch.arange(len(slot), device=slot.device)
        size = swaps.weight * self.prior.scale(images, swaps.elements)
        self.memory.put(slot, swaps.elements, size, change)
        self.count[rows, slot] = count
        self.said[rows, slot] = self._say(swaps.elements, size)
        memory = self.remembered
        alike = memory.covariance(swaps.elements, size)
        alike = alike + _OWN * _shared(memory, swaps, size)
        alike = alike + _TOLL * count[:, None] * self.count
        self.posterior.learn(step, there.double(), alike, _noise(count))

    def _say(self, elements: Elements, size: Tensor) -> Tensor:
        """``(n, 2 * draws)``: what the draws say of swaps, and the own parts of these."""
        fields = self.prior.fields
        cell = self.prior.cell_of[elements.pixel][:, None, None].expand(-1, _BASIS, fields, -1)
        found = self.basis.view(len(size), _BASIS, fields, -1).gather(3, cell)
        feature = size[:, :, None] * self.prior.loading[elements.colour]
        smooth = (found * feature.mT[:, None]).sum((2, 3))
        own = (self._signs(elements) * size[:, :, None]).sum(1)
        return torch.cat([smooth, math.sqrt(_OWN) * own], 1)

    def _signs(self, elements: Elements) -> Tensor:
        """``(n, m, draws)``: random signs of elements; a mix of them is a draw of own parts."""
        key = elements.pixel * len(self.prior.colours) + elements.colour
        number = rng.bits(rng.streams(0, key.flatten()), 0, Purpose.BANDIT_SIGN, 1)
        bits = number >> torch.arange(_BASIS, device=number.device).int() & 1
        return 1.0 - 2.0 * bits.float().view(*key.shape, _BASIS)


@dataclass
class SwapProposals(Rows):
    """The best mask with some elements swapped; how many follows success."""

    model: SwapModel
    radius: Tensor  # (n,): how many, before rounding
    new: Swaps  # those just proposed

    @classmethod
    def start(cls, prior: Prior, stream: Tensor, slots: int, b: int) -> SwapProposals:
        """For masks of B elements."""
        most = min(b, _MOST, prior.count)
        model = SwapModel.start(prior, stream, slots, most)
        radius = torch.full_like(model.count[:, 0], most)
        none = torch.zeros(len(stream), 2 * most, dtype=torch.int64, device=stream.device)
        return cls(model, radius, Swaps(Elements(none, none.clone()), none.float()))

    @property
    def most(self) -> int:
        """Swaps at once."""
        return self.new.weight.shape[1] // 2

    def propose(self, chance: Chance, images: Tensor, best: Best, slope: Tensor) -> Elements:
        """Take out of the best mask what it misses least, put in what promises most, well apart."""
        most, prior = self.most, self.model.prior
        effects, own = self.model.draw(chance, images, best.mask, slope)
        missed = prior.of_elements(effects, images, best.mask) + own
        order = missed.argsort(dim=1, stable=True)
        mask, out = best.mask.gather(order), best.mask.gather(order[:, :most])
        swapped = torch.arange(order.shape[1], device=order.device) < self.radius.round()[:, None]
        pixels = candidates(prior, chance)
        scale = prior.scales(images, pixels)
        value = torch.where(scale > 0, effects * scale, scale)
        worth, paint = best.admit(value, pixels, mask, torch.zeros_like(swapped)).max(1)
        taken = prior.summed((~swapped).float()[:, None], mask.pixel)[:, 0] > 0
        top, at = prior.peaks(unless_all(worth, taken)).topk(most, 1)
        take = swapped[:, :most] & (top > -torch.inf)
        into = Elements(pixels.gather(1, at), paint.gather(1, at))
        self.new = Swaps.of(out, into, take)
        mask.exchange(take, into)
        return mask

    def learn(self, step: Tensor, images: Tensor, answer: Answer, best: Best) -> None:
        """What the swaps did to the best mask, and how many are swapped next."""
        proposed = ~answer.random
        swaps = Swaps(self.new.elements, self.new.weight * proposed[:, None])
        self.model.learn(step, images, swaps, answer.z - best.z, proposed)
        shrinking = _GROWTH ** (-_SUCCESS / (1 - _SUCCESS))
        factor = torch.where(best.better(answer), _GROWTH, shrinking)
        radius = torch.where(proposed, self.radius * factor, self.radius)
        self.radius = radius.clamp(1, self.most)

    def reconsider(self, asked: Tensor, best: Best, slope: Tensor) -> None:
        """With noise, nothing is done: to estimate it was tried, and brought nothing."""


def candidates(prior: Prior, chance: Chance) -> Tensor:
    """``(n, cells)``: a random pixel of each cell."""
    (h, w), columns, side = prior.size, prior.cells[1], prior.side
    numbers = chance.bits(Purpose.BANDIT_CELL, prior.count) % side**2
    cell = torch.arange(prior.count, device=numbers.device)
    row = (cell // columns * side + numbers // side).clamp_max(h - 1)
    column = (cell % columns * side + numbers % side).clamp_max(w - 1)
    return row * w + column


def _noise(count: Tensor) -> Tensor:
    """Its variance after so many swaps."""
    return _BENT * count**2 + _NOISE


def _summed(memory: Memory, mask: Elements, weight: Tensor) -> Tensor:
    """``(n, B)``: the weights of observations, summed over those of each element of the mask."""
    place = memory.places(mask)
    known = torch.where(place >= 0, weight[:, :, None] * memory.size, 0.0)
    zeros = weight.new_zeros(mask.pixel.shape)
    return zeros.scatter_add_(1, place.clamp_min(0).flatten(1), known.flatten(1))


def _shared(memory: Memory, swaps: Swaps, size: Tensor) -> Tensor:
    """``(n, slots)``: products of sizes, summed over the elements that observations share."""
    pixel = torch.where(swaps.weight != 0, swaps.elements.pixel, memory.prior.pixels)
    place = memory.places(Elements(pixel, swaps.elements.colour))
    shared = size.gather(1, place.clamp_min(0).flatten(1)).view_as(place)
    return total(torch.where(place >= 0, shared * memory.size, 0.0))
