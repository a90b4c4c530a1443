"""What both searches of PixelBandit share: a Gaussian process, and how scores become numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.pixel_bandit.prior import Prior
from brusle.problems import Candidates, Edits, Problems
from brusle.rng import Purpose
from brusle.search import Feedback, Search

if TYPE_CHECKING:
    from brusle.attacks.pixel_bandit import PixelBandit

DARING = 0.6  # how far draws stray from the mean, in standard deviations
PART = 16  # elements that are summed at once
_CLASSES = 10  # scores that the model listens to
_REFRESH = 64  # rounds between fresh inverses, once old observations are replaced


@dataclass
class Bandit(Search):
    """A search whose model is a sum of effects of elements (pixel, colour).

    An observation is a change of scores and the weighted elements that it comes from.
    Observations lie in slots; when all are taken, a new one replaces the oldest.
    """

    settings: PixelBandit
    prior: Prior
    sign: float  # 1 if the aim's score is to rise, -1 if it is to fall
    stream: Tensor
    images: Tensor  # (n, pixels, c)
    aim: Tensor  # (n,): target, or label
    pixel: Tensor  # (n, slots, elements): what is remembered
    colour: Tensor  # (n, slots, elements)
    effect: Tensor  # (n, slots, elements): which of all effects are theirs, see `_index`
    size: Tensor  # (n, slots, elements): their weight times their scale
    z: Tensor  # (n, slots, classes): change of the scores
    known: Tensor  # (n, slots): 1 where something is remembered, 0 elsewhere
    covariance: Tensor  # (n, slots, slots)
    inverse: Tensor  # (n, slots, slots): of what is remembered, 0 elsewhere
    classes: Tensor  # (n, classes): which scores are listened to; the aim's comes first
    heard: Tensor  # (n, classes) bool: there are so many
    floor: Tensor  # (n, 1): what a probability of 0 is taken for
    best_pixel: Tensor  # (n, B)
    best_colour: Tensor  # (n, B)
    best_z: Tensor  # (n, classes): scores of the best mask
    loss: Tensor  # (n,) of the best mask; inf before the first answer
    new_pixel: Tensor  # (n, B): the mask just asked
    new_colour: Tensor  # (n, B)
    tried: Tensor  # (n, k, cells) bool: put into the best mask in vain

    @staticmethod
    def blank(
        settings: PixelBandit, prior: Prior, problems: Problems, seed: int, restart: int
    ) -> dict[str, Any]:
        """The fields of a search that knows nothing yet, but for those that remember."""
        n, b = len(problems), settings.pixels
        place = problems.images.device
        whole = torch.zeros(n, b, dtype=torch.int64, device=place)
        scores = torch.zeros(n, _CLASSES, dtype=torch.float64, device=place)
        return {
            "settings": settings,
            "prior": prior,
            "sign": -1.0 if problems.targets is None else 1.0,
            "stream": rng.streams(seed, problems.ids, restart),
            "images": problems.flat_images,
            "aim": problems.labels if problems.targets is None else problems.targets,
            "classes": scores.long(),
            "heard": scores.bool(),
            "floor": scores[:, :1].clone(),
            "best_pixel": whole + torch.arange(b, device=place),
            "best_colour": whole.clone(),
            "best_z": scores,
            "loss": scores[:, 0] + torch.inf,
            "new_pixel": whole.clone(),
            "new_colour": whole,
            "tried": scores.new_zeros(n, len(prior.colours), prior.count).bool(),
        }

    @staticmethod
    def memory(problems: Problems, prior: Prior, slots: int, elements: int) -> dict[str, Any]:
        """The fields that remember, for so many observations of so many elements, all empty."""
        n = len(problems)

        def real(*shape: int) -> Tensor:
            return torch.zeros(n, *shape, dtype=torch.float64, device=problems.images.device)

        return {
            "pixel": real(slots, elements).long(),
            "colour": real(slots, elements).long(),
            "effect": real(slots, elements).long(),
            "size": real(slots, elements).float(),
            "z": real(slots, _CLASSES),
            "known": real(slots),
            "covariance": real(slots, slots),
            "inverse": real(slots, slots),
        }

    def initial(self, step: Tensor) -> Tensor:
        """``(n,)``: the first masks are random."""
        return step < self.settings.initial

    def ask(self, step: Tensor) -> Edits:
        """Random masks first, then swaps by drawn effects."""
        initial = self.initial(step)
        if not bool(initial.all()):
            self.new_pixel, self.new_colour = self._propose(step)
        random = initial.nonzero()[:, 0]
        if len(random):
            masks = self._random_masks(random, step[random])
            self.new_pixel[random], self.new_colour[random] = masks
        return Edits(self.new_pixel, self.prior.colours[self.new_colour])

    def resume(self, edits: Edits) -> Candidates:
        """Take the pixels as the best mask, in the nearest corner colours."""
        distance = (edits.colour[:, :, None] - self.prior.colours).abs().sum(3)
        self.best_pixel, self.best_colour = edits.index, distance.argmin(2)
        self.new_pixel, self.new_colour = self.best_pixel.clone(), self.best_colour.clone()
        return Edits(self.new_pixel, self.prior.colours[self.new_colour])

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Remember the mask and its scores; it may be the best."""
        self._listen(feedback)
        z = self._scores(feedback)
        better = feedback.loss < self.loss
        self._learn(step, z, better)
        self._rule_out(better, self.initial(step))
        self.best_pixel = torch.where(better[:, None], self.new_pixel, self.best_pixel)
        self.best_colour = torch.where(better[:, None], self.new_colour, self.best_colour)
        self.best_z = torch.where(better[:, None], z, self.best_z)
        self.loss = torch.where(better, feedback.loss, self.loss)

    def expected_effects(self) -> Tensor:
        """``(n, k, pixels)``: the posterior mean of the effect of every pixel in every colour.

        It is for people to look at; the search itself draws. NaN where a colour is the pixel's own.
        """
        y = self._observed()
        weight = (self.inverse @ y[:, :, None])[:, :, 0]
        everywhere = torch.arange(self.images.shape[1], device=y.device).expand(len(y), -1)
        scale = self.prior.scales(self.images, everywhere)
        effect = self._posterior(weight.float())[:, :, self.prior.cell_of] * scale
        return effect.masked_fill(scale == -torch.inf, torch.nan)

    def _propose(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """The next masks, by what is known."""
        raise NotImplementedError

    def _learn(self, step: Tensor, z: Tensor, better: Tensor) -> None:
        """Put the scores of the mask just asked into the model.

        Args:
            step: ``(n,)``.
            z: ``(n, classes)``.
            better: ``(n,)``: it is the best so far.
        """
        raise NotImplementedError

    def _observed(self) -> Tensor:
        """``(n, slots)``: observations as numbers, 0 where there are none."""
        raise NotImplementedError

    def _random_masks(self, rows: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels by the square of their prior scale, and colours that are not their own."""
        stream, b = self.stream[rows], self.settings.pixels
        weight = self.prior.centre.square()
        race = rng.exponential(rng.bits(stream, step, Purpose.BANDIT_PLACE, len(weight))) / weight
        pixel = rng.winners(race, b)
        count = len(self.prior.colours)
        colour = rng.bits(stream, step, Purpose.BANDIT_PAINT, b).long() % count
        own = self.images[rows].gather(1, pixel[:, :, None].expand(-1, -1, self.images.shape[2]))
        same = (self.prior.colours[colour] == own).all(2)
        return pixel, torch.where(same, count - 1 - colour, colour)  # the opposite corner

    def _without(
        self, value: Tensor, candidates: Tensor, pixel: Tensor, colour: Tensor, swapped: Tensor
    ) -> Tensor:
        """No pixel twice, no element back that is just taken out, nothing tried in vain.

        Args:
            value: ``(n, k, cells)`` of the candidates in all colours.
            candidates: ``(n, cells)`` pixels.
            pixel: ``(n, B)`` of the best mask.
            colour: ``(n, B)``.
            swapped: ``(n, B)`` bool: which of its elements are taken out.
        """
        n, k, _ = value.shape
        shape = (n, self.images.shape[1])
        state = torch.full(shape, -1, dtype=torch.int8, device=value.device)
        state.scatter_(1, pixel, torch.where(swapped, colour, k).to(torch.int8))  # k: stays
        there = state.gather(1, candidates)[:, None]
        every = torch.arange(k, device=value.device)[:, None]
        value = value.masked_fill((there == k) | (there == every), -torch.inf)
        return unless_all(value, self.tried)

    def _rule_out(self, better: Tensor, initial: Tensor) -> None:
        """Elements of a mask that was not better are tried; a better one makes all new."""
        n, k, cells = self.tried.shape
        element = self._index(self.new_pixel, self.new_colour)
        chosen = (~initial)[:, None].expand_as(element)
        tried = self.tried.view(n, -1).scatter(1, element, chosen)
        self.tried = (tried & ~better[:, None]).view(n, k, cells)

    def _index(self, pixel: Tensor, colour: Tensor) -> Tensor:
        """Which of ``(n, k * cells)`` effects are those of elements."""
        return colour * self.prior.count + self.prior.cell_of[pixel]

    def _effects(self, effect: Tensor, pixel: Tensor, colour: Tensor) -> Tensor:
        """``(n, B)``: of all effects, ``(n, k, cells)``, those of elements."""
        scale = self.prior.scale(self.images, pixel, colour)
        return effect.flatten(1).gather(1, self._index(pixel, colour)) * scale

    def _numbers(self, step: Tensor | int, purpose: Purpose, count: int) -> Tensor:
        """``(n, count)`` independent numbers of mean 0 and variance 1.

        They are uniform: sums of many are normal, and only sums are used.
        """
        numbers = rng.uniform(rng.bits(self.stream, step, purpose, count))
        return (numbers.float() - 0.5) * math.sqrt(12)

    def _weights(self, said: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights of observations, by which a draw from the prior becomes one from the posterior.

        It is corrected by what it gets wrong about them (Matheron's rule).

        Args:
            said: ``(n, slots)``: what the draw, with a standard deviation of 1, says of them.

        Returns:
            ``(n, slots)`` weights of the draw; ``(n, 1)`` its standard deviation; ``(n, slots)``
            weights of the mean. How large effects are is estimated here: such that the
            observations are as likely as can be.
        """
        y = self._observed()
        weight = self.inverse @ torch.stack([y, said.double() * self.known], 2)
        mean = weight[:, :, 0]
        count = self.known.sum(1).clamp_min(1)
        scale = DARING * ((y * mean).sum(1) / count).clamp_min(1e-12).sqrt()[:, None]
        return (mean - scale * weight[:, :, 1]).float(), scale.float(), mean.float()

    def _width(self) -> int:
        """So many elements of an observation matter; the rest have no weight."""
        return self.pixel.shape[2]

    def _look_up(self, effect: Tensor) -> Tensor:
        """``(n, slots)``: sums of effects, ``(n, k, cells)``, over the elements of observations."""
        width = self._width()
        index, size = self.effect[:, :, :width], self.size[:, :, :width]
        found = effect.flatten(1).gather(1, index.flatten(1)).view_as(size)
        return total(found * size)

    def _alike(self, effect: Tensor, size: Tensor) -> Tensor:
        """``(n, k, cells)``: covariance of all effects with a sum of some.

        Args:
            effect: ``(n, m)``, which; see `_index`.
            size: ``(n, m)``, their factors.
        """
        k, count = len(self.prior.colours), self.prior.count
        some = size.new_zeros(len(size), k * count).scatter_add_(1, effect, size)
        fields = self.prior.loading.T @ some.view(-1, k, count)
        return self.prior.loading @ self.prior.smooth(fields)

    def _posterior(self, weight: Tensor) -> Tensor:
        """``(n, k, cells)``: what observations of such weights say of all effects."""
        width = self._width()
        size = weight[:, :, None] * self.size[:, :, :width]
        return self._alike(self.effect[:, :, :width].flatten(1), size.flatten(1))

    def _places(self, pixel: Tensor, colour: Tensor) -> Tensor:
        """``(n, slots, width)``: where in a list of elements each remembered one is; -1 if nowhere.

        Args:
            pixel: ``(n, m)``, none of them twice; one past the last for an element not to find.
            colour: ``(n, m)``.
        """
        n, m = pixel.shape
        width, shape = self._width(), (n, self.images.shape[1] + 1)
        place = torch.full(shape, -1, dtype=torch.int32, device=pixel.device)
        place.scatter_(1, pixel, torch.arange(m, device=pixel.device).int().expand(n, -1))
        found = place.gather(1, self.pixel[:, :, :width].reshape(n, -1)).long()
        same = colour.gather(1, found.clamp_min(0)) == self.colour[:, :, :width].reshape(n, -1)
        return torch.where((found >= 0) & same, found, -1).view(n, -1, width)

    def _direction(self) -> Tensor:
        """``(n, classes, 1)``: the slope of the aim's log-odds at the best mask."""
        others = self.best_z.masked_fill(~self.heard, -torch.inf)[:, 1:].softmax(1)
        slope = torch.cat([torch.ones_like(others[:, :1]), -others], 1)
        return self.sign * slope[:, :, None]

    def _listen(self, feedback: Feedback) -> None:
        """Where this is the first answer: choose the classes that compete with the aim."""
        new = self.loss == torch.inf
        if not bool(new.any()):
            return
        scores = feedback.scores.values.double()
        others = scores.scatter(1, self.aim[:, None], -torch.inf)
        count = min(_CLASSES, scores.shape[1])
        chosen = torch.cat([self.aim[:, None], others.topk(count - 1, 1).indices], 1)
        padded = self.aim[:, None].expand(-1, _CLASSES - count)
        self.classes = torch.where(new[:, None], torch.cat([chosen, padded], 1), self.classes)
        self.heard = torch.arange(_CLASSES, device=new.device).expand_as(self.heard) < count
        least = scores.masked_fill(scores <= 0, torch.inf).amin(1, keepdim=True) / 2
        self.floor = torch.where(new[:, None], least, self.floor)

    def _scores(self, feedback: Feedback) -> Tensor:
        """``(n, classes)``: logits or log-probabilities of the classes that are listened to."""
        scores = feedback.scores.values.double()
        if feedback.scores.meaning.output == "probabilities":
            scores = scores.clamp_min(self.floor).log()
        return scores.gather(1, self.classes)

    def _free_slot(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Rows, and the slot of each that is next; what was in it is taken out of the inverse."""
        n, slots = self.known.shape
        rows, slot = torch.arange(n, device=step.device), step % slots
        if int(step.max()) >= slots:
            column = self.inverse[rows, slot]
            own = column[rows, slot][:, None]
            factor = torch.where(own > 0, -column / own, 0.0)
            self.inverse.baddbmm_(column[:, :, None], factor[:, None])
            self.inverse[rows, slot] = 0.0
            self.inverse[rows, :, slot] = 0.0
        return rows, slot

    def _add(self, step: Tensor, slot: Tensor, alike: Tensor, noise: Tensor) -> None:
        """Put the observation in ``slot`` into the inverse, if there is one.

        Args:
            step: ``(n,)``.
            slot: ``(n,)``.
            alike: ``(n, slots)`` covariance with all observations, and with itself but for noise.
            noise: ``(n,)`` its variance.
        """
        rows = torch.arange(len(slot), device=slot.device)
        there = self.known[rows, slot]
        alike = alike.double() * self.known * there[:, None]
        alike[rows, slot] += noise
        self.covariance[rows, slot] = alike
        self.covariance[rows, :, slot] = alike
        own = alike[rows, slot].clone()
        alike[rows, slot] = 0.0
        v = (self.inverse @ alike[:, :, None])[:, :, 0]
        left = (own - (alike * v).sum(1)).clamp_min(noise / 2)
        v[rows, slot] = -there
        self.inverse.baddbmm_(v[:, :, None], (v / left[:, None])[:, None])
        # replacing observations adds up rounding errors, so now and then the inverse is made anew
        stale = (step > self.known.shape[1]) & (step % _REFRESH == 0)
        if bool(stale.any()):
            self._invert(stale.nonzero()[:, 0])

    def _invert(self, rows: Tensor) -> None:
        """Make the inverse anew."""
        known = self.known[rows]
        whole = self.covariance[rows] + torch.diag_embed(1 - known)  # an empty slot stays apart
        self.inverse[rows] = torch.linalg.inv(whole) * known[:, :, None] * known[:, None]


def total(values: Tensor) -> Tensor:
    """``(n, slots)``: the sum of ``(n, slots, width)``.

    It is taken in parts of one size, one after another. More zeros would else change its last
    digits, and the width is shared by a batch.
    """
    sums = values[:, :, :PART].sum(2)
    for at in range(PART, values.shape[2], PART):
        sums = sums + values[:, :, at : at + PART].sum(2)
    return sums


def unless_all(value: Tensor, barred: Tensor) -> Tensor:
    """-inf where something is barred, unless nothing else would be left in a row."""
    rest = value.masked_fill(barred, -torch.inf)
    some = (rest > -torch.inf).flatten(1).any(1)
    return torch.where(some.view(-1, *(1,) * (value.dim() - 1)), rest, value)
