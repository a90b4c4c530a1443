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
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.pixel_bandit.prior import Prior
from brusle.attacks.pixel_bandit.search import PART, Bandit, total, unless_all
from brusle.problems import Problems
from brusle.rng import Purpose

if TYPE_CHECKING:
    from brusle.attacks.pixel_bandit import PixelBandit

_MEMORY = 300  # observations, if nothing else is said
_MOST = 64  # swaps at once
_OWN = 0.3  # prior variance of the own part, in squared scales of an effect
_TOLL = 1.0  # and of the toll
_BENT, _NOISE = 0.01, 0.02  # variance of the noise: by the square of the swaps, and for any number
_GROWTH, _SUCCESS = 1.5, 0.2  # of the number of swaps at a success, and the share of these
_BASIS = 16  # draws from the prior that all others are mixed of; at most 31


@dataclass
class SwapBandit(Bandit):
    """The state of the search; an observation is some swaps, of weight 1 put in, -1 taken out.

    A draw from the prior is a mix of a few that never change, so that what they say of an
    observation is looked up only once.
    """

    radius: Tensor  # (n,): how many elements are swapped, before rounding
    swaps: Tensor  # (n, slots): how many were
    basis: Tensor  # (n, draws, fields * cells): draws from the prior of the fields
    said: Tensor  # (n, slots, 2 * draws): what they say of the observations, and own parts
    new_swap: Tensor  # (n, elements): pixels just swapped, one taken out and one put in by turns
    new_paint: Tensor  # (n, elements): their colours
    new_weight: Tensor  # (n, elements): -1, 1, or 0 for none

    @classmethod
    def start(
        cls, settings: PixelBandit, prior: Prior, problems: Problems, seed: int, restart: int
    ) -> SwapBandit:
        """Nothing is known yet."""
        n, most = len(problems), min(settings.pixels, _MOST, prior.count)
        slots = min(settings.memory or _MEMORY, settings.queries)
        fields = cls.blank(settings, prior, problems, seed, restart)
        remembered = cls.memory(problems, prior, slots, 2 * most)
        elements = remembered["pixel"][:, 0]
        search = cls(
            **fields,
            **remembered,
            radius=torch.zeros_like(fields["loss"]) + most,
            swaps=torch.zeros_like(remembered["known"]),
            basis=remembered["size"].new_zeros(n, _BASIS, prior.fields * prior.count),
            said=remembered["size"].new_zeros(n, slots, 2 * _BASIS),
            new_swap=elements.clone(),
            new_paint=elements.clone(),
            new_weight=elements.float(),
        )
        count = search.basis.shape[1] * search.basis.shape[2]
        numbers = search._numbers(0, Purpose.BANDIT_RESIDUAL, count)
        search.basis = prior.draw(numbers).view_as(search.basis)
        return search

    def _propose(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Take out of the best mask what it misses least, put in what promises most, well apart."""
        b = self.settings.pixels
        effect, own = self._draw(step)
        value = self._effects(effect, self.best_pixel, self.best_colour) + own
        worst = value.argsort(dim=1, stable=True)
        pixel, colour = self.best_pixel.gather(1, worst), self.best_colour.gather(1, worst)
        most = self.new_swap.shape[1] // 2
        swapped = torch.arange(b, device=pixel.device) < self.radius.round()[:, None]
        candidates = self._candidates(step)
        scale = self.prior.scales(self.images, candidates)
        value = torch.where(scale > 0, effect * scale, scale)
        none = torch.zeros_like(swapped)
        worth, paint = self._without(value, candidates, pixel, colour, none).max(1)
        taken = self.prior.summed((~swapped).float()[:, None], pixel)[:, 0] > 0
        top, at = self.prior.peaks(unless_all(worth, taken)).topk(most, 1)
        take = swapped[:, :most] & (top > -torch.inf)
        added, painted = candidates.gather(1, at), paint.gather(1, at)
        self.new_swap = torch.stack([pixel[:, :most], added], 2).flatten(1)
        self.new_paint = torch.stack([colour[:, :most], painted], 2).flatten(1)
        self.new_weight = torch.stack([-take.float(), take.float()], 2).flatten(1)
        pixel[:, :most] = torch.where(take, added, pixel[:, :most])
        colour[:, :most] = torch.where(take, painted, colour[:, :most])
        return pixel, colour

    def _draw(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """A draw from the posterior.

        Returns:
            ``(n, k, cells)``: what the fields say of all effects.
            ``(n, B)``: the own parts of the elements of the best mask.
        """
        n, slots = self.known.shape
        mix = self._numbers(step, Purpose.BANDIT_FIELD, 2 * _BASIS) / math.sqrt(_BASIS)
        fields = (mix[:, None, :_BASIS] @ self.basis).view(n, self.prior.fields, -1)
        drawn = self.prior.loading @ fields
        signs = self._signs(self.best_pixel, self.best_colour)
        own = math.sqrt(_OWN) * (signs @ mix[:, _BASIS:, None])[:, :, 0]
        numbers = self._numbers(step, Purpose.BANDIT_NOISE, slots + 1)
        noise = self._noise(self.swaps).sqrt() * numbers[:, 1:]
        toll = math.sqrt(_TOLL) * self.swaps * numbers[:, :1]
        said = (self.said @ mix[:, :, None])[:, :, 0]
        weight, scale, _ = self._weights(said + noise + toll)
        sizes = self.prior.scale(self.images, self.best_pixel, self.best_colour)
        own = (scale * own + _OWN * self._familiar(weight)) * sizes
        return self._posterior(weight) + scale[:, :, None] * drawn, own

    def _familiar(self, weight: Tensor) -> Tensor:
        """``(n, B)``: the weights of observations, summed over those of each element."""
        place = self._places(self.best_pixel, self.best_colour)
        known = torch.where(place >= 0, weight[:, :, None] * self.size[:, :, : place.shape[2]], 0.0)
        zeros = weight.new_zeros(self.best_pixel.shape)
        return zeros.scatter_add_(1, place.clamp_min(0).flatten(1), known.flatten(1))

    def _width(self) -> int:
        """No observation has had more swaps; in whole parts, see `total`."""
        elements = 2 * int(self.swaps.max())
        return min(self.pixel.shape[2], max(1, -(-elements // PART)) * PART)

    def _observed(self) -> Tensor:
        """Changes of the scores."""
        return (self.z @ self._direction())[:, :, 0] * self.known

    def _candidates(self, step: Tensor) -> Tensor:
        """``(n, cells)``: a random pixel of each cell."""
        (h, w), (rows, columns), side = self.prior.size, self.prior.cells, self.prior.side
        count = rows * columns
        numbers = rng.bits(self.stream, step, Purpose.BANDIT_CELL, count) % side**2
        cell = torch.arange(count, device=numbers.device)
        row = (cell // columns * side + numbers // side).clamp_max(h - 1)
        column = (cell % columns * side + numbers % side).clamp_max(w - 1)
        return row * w + column

    def _signs(self, pixel: Tensor, colour: Tensor) -> Tensor:
        """``(n, m, draws)``: random signs of elements; a mix of them is a draw of own parts."""
        elements = pixel * len(self.prior.colours) + colour
        number = rng.bits(rng.streams(0, elements.flatten()), 0, Purpose.BANDIT_SIGN, 1)
        bits = number >> torch.arange(_BASIS, device=number.device).int() & 1
        return 1.0 - 2.0 * bits.float().view(*elements.shape, _BASIS)

    def _learn(self, step: Tensor, z: Tensor, better: Tensor) -> None:
        """The swaps go into the next slot, unless the mask was random."""
        rows, slot = self._free_slot(step)
        chosen = ~self.initial(step)
        weight = self.new_weight * chosen[:, None]
        size = weight * self.prior.scale(self.images, self.new_swap, self.new_paint)
        effect = self._index(self.new_swap, self.new_paint)
        swaps = weight.clamp_min(0).sum(1).double()
        self.pixel[rows, slot], self.colour[rows, slot] = self.new_swap, self.new_paint
        self.effect[rows, slot], self.size[rows, slot] = effect, size
        self.z[rows, slot] = z - self.best_z
        self.swaps[rows, slot], self.known[rows, slot] = swaps, chosen.double()
        self.said[rows, slot] = self._say(size)
        alike = self._look_up(self._alike(effect, size))
        swapped = torch.where(weight != 0, self.new_swap, self.images.shape[1])
        place = self._places(swapped, self.new_paint)
        shared = size.gather(1, place.clamp_min(0).flatten(1)).view_as(place)
        shared = torch.where(place >= 0, shared * self.size[:, :, : place.shape[2]], 0.0)
        alike = alike + _OWN * total(shared)
        alike = alike + _TOLL * swaps[:, None] * self.swaps
        self._add(step, slot, alike, self._noise(swaps))
        factor = torch.where(better, _GROWTH, _GROWTH ** (-_SUCCESS / (1 - _SUCCESS)))
        most = self.new_swap.shape[1] // 2
        self.radius = torch.where(chosen, self.radius * factor, self.radius).clamp(1, most)

    def _say(self, size: Tensor) -> Tensor:
        """``(n, 2 * draws)``: what the draws say of the swaps just asked, and their own parts."""
        fields = self.prior.fields
        cell = self.prior.cell_of[self.new_swap][:, None, None].expand(-1, _BASIS, fields, -1)
        found = self.basis.view(len(size), _BASIS, fields, -1).gather(3, cell)
        feature = size[:, :, None] * self.prior.loading[self.new_paint]
        smooth = (found * feature.mT[:, None]).sum((2, 3))
        own = (self._signs(self.new_swap, self.new_paint) * size[:, :, None]).sum(1)
        return torch.cat([smooth, math.sqrt(_OWN) * own], 1)

    def _noise(self, swaps: Tensor) -> Tensor:
        """Its variance after so many swaps."""
        return _BENT * swaps**2 + _NOISE
