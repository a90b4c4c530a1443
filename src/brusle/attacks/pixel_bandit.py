"""PixelBandit: a sparse attack that models what pixels do to the scores. It is brusle's own.

BruSLe learns from the sign of each change, PixelBandit from its size. Around a mask, the effects of
pixels on the log-odds are nearly additive, and alike for neighbours and for similar colours. So the
score of a mask, a set of B elements (pixel, colour), is modelled as

    f(mask) = constant + sum of w(pixel, colour) / crowd(pixel, mask) + residual

with Gaussian-process priors for the effects w and for the residual. The crowd counts the elements
of the mask that are near, each by exp(-distance / reach), itself included: pixels that stand
together do little more than one of them alone, so what they do is shared out among them. The
residual is what this gets wrong; it is alike for masks that share many elements. Every round draws
effects from the posterior (Thompson sampling), takes the elements out of the best mask without
which it would be best, and puts in those elsewhere that promise most beside the rest. What was
tried in vain is not tried again before the best mask changes.

Three things keep a query cheap, whatever the size of the image and the number of queries:

* only the last ``memory`` observations are remembered; the inverse of their covariance is updated
  in place when one replaces another;
* in large images a cell of neighbouring pixels shares one effect per colour;
* the residual of a draw comes from random features instead of a Cholesky factor. A product of
  random signs with mean mu over the elements of a mask has the covariance mu^(2 (B - shared)),
  which is the residual's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.base import SparseAttack, require_integer
from brusle.errors import InputError
from brusle.goals import Loss
from brusle.loop import Feedback, Search
from brusle.problems import Edits, Problems

_PLACE, _PAINT, _FIELD, _RESIDUAL, _NOISE_DRAW, _CELL, _SIGN = range(7)  # tags of random numbers
_ALIKE = 0.55  # prior correlation of the effects of opposite colours
_OFFSET, _POWER = 0.02, 1.0  # effects grow with the distance of the colour from the original
_REACH, _LEAST = 27 / 32, 0.05  # and fall with the distance from the centre, in image sizes
_CONSTANT = 100.0  # prior variance of the constant, in squared scales of an effect
_CROWD_REACH = 2.0  # of the crowd, in pixels; a cell, where that is more
_RESIDUAL_SHARE, _RESIDUAL_REACH = 0.1, 0.6  # its variance and its reach, in pixel budgets
_DARING = 0.6  # how far draws stray from the mean, in standard deviations
_NOISE = 0.05  # variance of what no model explains
_FEATURES = 128  # signs that a residual is drawn from
_CLASSES = 10  # scores that the model listens to
_CELLS = 64  # most cells along a side
_REFRESH = 64  # rounds between fresh inverses, once old observations are replaced


@dataclass(frozen=True)
class PixelBandit(SparseAttack):
    """Thompson sampling of the effects of pixels.

    Attributes:
        pixels: most pixels that may differ from the original.
        queries: most queries per image.
        initial: random masks to begin with.
        length: over how many pixels effects are alike; None is an eighth of the longer side.
        decay: how fast the number of swapped elements falls to one.
        memory: observations that the model remembers.
    """

    initial: int = 2
    length: float | None = None
    decay: float = 0.2
    memory: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("initial", self.initial, least=1)
        require_integer("memory", self.memory, least=2)
        if self.length is not None and not self.length > 0:
            raise InputError(f"length is {self.length}: it must be above 0")
        if not self.decay > 0:
            raise InputError(f"decay is {self.decay}: it must be above 0")

    def loss_for(self, targeted: bool) -> Loss:
        """Cross-entropy, which falls as the log-odds rise."""
        return "ce"

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Nothing is known yet."""
        n, (c, h, w), b = len(problems), problems.shape, self.pixels
        place = problems.images.device
        memory = min(self.memory, self.queries)
        grid = _Grid.of(h, w, c, self.length or max(h, w) / 8, place)

        def real(*shape: int) -> Tensor:
            return torch.zeros(n, *shape, dtype=torch.float64, device=place)

        def whole(*shape: int) -> Tensor:
            return real(*shape).long()

        images = problems.flat_images
        everywhere = torch.arange(h * w, device=place).expand(n, -1)
        return Bandit(
            settings=self,
            grid=grid,
            sign=-1.0 if problems.targets is None else 1.0,
            stream=rng.streams(seed, problems.ids, restart),
            images=images,
            # drawing candidates needs it every round, and for one pixel per cell it stays the same
            scale=grid.scales(images, everywhere if grid.side == 1 else everywhere[:, :0]),
            aim=problems.labels if problems.targets is None else problems.targets,
            asked=whole(),
            pixel=whole(memory, b),
            colour=whole(memory, b) - 1,
            feature=real(memory, b, grid.fields).float(),
            z=real(memory, _CLASSES),
            covariance=real(memory, memory),
            inverse=real(memory, memory),
            parity=real(memory, _FEATURES).float(),
            classes=whole(_CLASSES),
            heard=real(_CLASSES).bool(),
            floor=real(1),
            first=real(_CLASSES),
            base=real(_CLASSES),
            counted=real(1),
            best_pixel=whole(b) + torch.arange(b, device=place),
            best_colour=whole(b),
            best_z=real(_CLASSES),
            loss=real() + torch.inf,
            new_pixel=whole(b),
            new_colour=whole(b),
            given=real().bool(),
            tried=real(len(grid.colours), grid.count).bool(),
        )


@dataclass(frozen=True)
class _Grid:
    """What the model knows of images of one shape before it sees any.

    Attributes:
        size: height and width in pixels.
        cells: the same in cells.
        side: of a cell.
        rows: ``(height, height)`` prior covariance between rows of cells.
        columns: likewise.
        near_rows: ``(height, height)``: how much rows of cells belong to the same crowd.
        near_columns: likewise.
        row_root: Cholesky factor of ``rows``.
        column_root: likewise.
        colours: ``(k, c)``: corners of the colour cube.
        loading: ``(k, fields)``: an effect is a mix of fields, one for all colours and one for
            each channel.
        centre: ``(pixels,)`` prior scale by position.
        cell_of: ``(pixels,)`` which cell a pixel lies in.
    """

    size: tuple[int, int]
    cells: tuple[int, int]
    side: int
    rows: Tensor
    columns: Tensor
    near_rows: Tensor
    near_columns: Tensor
    row_root: Tensor
    column_root: Tensor
    colours: Tensor
    loading: Tensor
    centre: Tensor
    cell_of: Tensor

    @property
    def fields(self) -> int:
        return self.loading.shape[1]

    @property
    def count(self) -> int:
        """How many cells there are."""
        return self.cells[0] * self.cells[1]

    @classmethod
    @cache
    def of(cls, h: int, w: int, channels: int, length: float, device: torch.device) -> _Grid:
        """The grid of a shape."""
        side = -(-max(h, w) // _CELLS)
        cells = -(-h // side), -(-w // side)
        rows, columns = (_alike(count, side / length) for count in cells)
        reach = max(_CROWD_REACH, max(h, w) / _CELLS)
        near_rows, near_columns = (_alike(count, side / reach) for count in cells)
        colours, loading = _corners(channels)
        y, x = torch.arange(h, dtype=torch.float64), torch.arange(w, dtype=torch.float64)
        radius = torch.hypot(y[:, None] - (h - 1) / 2, x - (w - 1) / 2).flatten()
        centre = (1 - radius / (_REACH * max(h, w))).clamp_min(_LEAST)
        pixel = torch.arange(h * w)

        def table(values: Tensor) -> Tensor:
            # single precision is enough for effects; only the inverse needs double
            return values.float().to(device)

        cell_of = pixel // w // side * cells[1] + pixel % w // side
        return cls(
            (h, w),
            cells,
            side,
            table(rows),
            table(columns),
            table(near_rows),
            table(near_columns),
            table(torch.linalg.cholesky(rows)),
            table(torch.linalg.cholesky(columns)),
            table(colours),
            table(loading),
            table(centre / centre.square().mean().sqrt()),
            cell_of.to(device),
        )

    def smooth(self, values: Tensor) -> Tensor:
        """``(n, fields, cells)``: values times their prior covariance."""
        return (self.rows @ self._plane(values) @ self.columns).flatten(2)

    def draw(self, numbers: Tensor) -> Tensor:
        """``(n, fields, cells)``: independent numbers as a draw from the prior."""
        return (self.row_root @ self._plane(numbers) @ self.column_root.T).flatten(2)

    def _plane(self, values: Tensor) -> Tensor:
        return values.view(len(values), -1, *self.cells)

    def nearby(self, values: Tensor, pixel: Tensor) -> Tensor:
        """``(n, m, cells)``: the sum of values at pixels, as seen from everywhere by nearness.

        Args:
            values: ``(n, m, b)``.
            pixel: ``(n, b)``.
        """
        cells = self._plane(self.summed(values, pixel))
        return (self.near_rows @ cells @ self.near_columns).flatten(2)

    def summed(self, values: Tensor, pixel: Tensor) -> Tensor:
        """``(n, m, cells)``: ``(n, m, b)`` added up in the cells of pixels."""
        n, m, _ = values.shape
        at = self.cell_of[pixel][:, None].expand(-1, m, -1)
        return values.new_zeros(n, m, self.count).scatter_add_(2, at, values.contiguous())

    def at(self, fields: Tensor, pixel: Tensor) -> Tensor:
        """``(n, m, b)``: ``(n, m, cells)`` looked up at pixels."""
        cell = self.cell_of[pixel][:, None].expand(-1, fields.shape[1], -1)
        return fields.gather(2, cell)

    def scale(self, images: Tensor, pixel: Tensor, colour: Tensor) -> Tensor:
        """Prior scale of elements, ``(n, m)``.

        Args:
            images: ``(n, pixels, c)``.
            pixel: ``(n, m)``.
            colour: ``(n, m)``.
        """
        own = images.gather(1, pixel[:, :, None].expand(-1, -1, images.shape[2]))
        return self.centre[pixel] * _growth((self.colours[colour] - own).abs().mean(2))

    def scales(self, images: Tensor, pixel: Tensor) -> Tensor:
        """Prior scale of pixels in all colours, ``(n, k, m)``; -inf where a colour is their own."""
        own = images.gather(1, pixel[:, :, None].expand(-1, -1, images.shape[2]))
        distance = (self.colours[:, None] - own[:, None]).abs().mean(3)
        scale = self.centre[pixel][:, None] * _growth(distance)
        return scale.masked_fill(distance == 0, -torch.inf)


def _growth(distance: Tensor) -> Tensor:
    """How effects grow with the distance of a colour from the original."""
    return ((distance + _OFFSET) / 0.5) ** _POWER


def _alike(count: int, step: float) -> Tensor:
    """``(count, count)``: exp(-distance), and a little more on the diagonal."""
    at = torch.arange(count, dtype=torch.float64) * step
    return torch.exp(-(at[:, None] - at).abs()) + 1e-9 * torch.eye(count, dtype=torch.float64)


def _corners(channels: int) -> tuple[Tensor, Tensor]:
    """Corner colours and their loadings; beyond three channels, several go together."""
    groups = min(channels, 3)
    bits = torch.arange(2**groups)[:, None] >> torch.arange(groups) & 1
    signs = 2.0 * bits.double() - 1
    share = (1 - _ALIKE) / 2
    common = torch.full((len(bits), 1), math.sqrt(_ALIKE + share), dtype=torch.float64)
    loading = torch.cat([common, signs * math.sqrt(share / groups)], 1)
    return bits[:, torch.arange(channels) % groups].float(), loading


@dataclass
class Bandit(Search):
    """The state of PixelBandit; observations lie in ``memory`` slots, the oldest is replaced."""

    settings: PixelBandit
    grid: _Grid
    sign: float  # 1 if the aim's score is to rise, -1 if it is to fall
    stream: Tensor
    images: Tensor  # (n, pixels, c)
    scale: Tensor  # (n, k, pixels): prior scales, if every pixel is a cell
    aim: Tensor  # (n,): target, or label
    asked: Tensor  # (n,) queries so far
    pixel: Tensor  # (n, memory, B): masks
    colour: Tensor  # (n, memory, B): their colours; -1 where nothing is remembered
    feature: Tensor  # (n, memory, B, fields): scale times loading of their elements
    z: Tensor  # (n, memory, classes): their scores, relative to the first
    covariance: Tensor  # (n, memory, memory)
    inverse: Tensor  # (n, memory, memory): of what is remembered, 0 elsewhere
    parity: Tensor  # (n, memory, features): products of random signs
    classes: Tensor  # (n, classes): which scores are listened to; the aim's comes first
    heard: Tensor  # (n, classes) bool: there are so many
    floor: Tensor  # (n, 1): what a probability of 0 is taken for
    first: Tensor  # (n, classes): scores of the first mask
    base: Tensor  # (n, classes): sum of the scores of the random masks, relative to the first
    counted: Tensor  # (n, 1): how many these are
    best_pixel: Tensor  # (n, B)
    best_colour: Tensor  # (n, B)
    best_z: Tensor  # (n, classes): scores of the best mask
    loss: Tensor  # (n,) of the best mask
    new_pixel: Tensor  # (n, B): the mask just asked
    new_colour: Tensor  # (n, B)
    given: Tensor  # (n,) bool: the best mask was given (`resume_from`) and has not been asked yet
    tried: Tensor  # (n, k, cells) bool: put into the best mask in vain

    def ask(self) -> Edits:
        """Random masks first, then swaps by drawn effects."""
        initial = self.initial()
        if not bool(initial.all()):
            self.new_pixel, self.new_colour = self._propose()
        if bool(initial.any()):
            rows = (initial & ~self.given).nonzero()[:, 0]
            self.new_pixel[rows], self.new_colour[rows] = self._random_masks(rows)
            self.new_pixel[self.given] = self.best_pixel[self.given]
            self.new_colour[self.given] = self.best_colour[self.given]
        return Edits(self.new_pixel, self.grid.colours[self.new_colour])

    def initial(self) -> Tensor:
        """``(n,)``: the first masks are random."""
        return self.asked < self.settings.initial

    def resume_from(self, edits: Edits) -> None:
        """Take the pixels as the best mask, in the nearest corner colours."""
        distance = (edits.colour[:, :, None] - self.grid.colours).abs().sum(3)
        self.best_pixel, self.best_colour = edits.index, distance.argmin(2)
        self.given = torch.ones_like(self.given)
        self.asked = self.asked + self.settings.initial - 1

    def _random_masks(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels by the square of their prior scale, and colours that are not their own."""
        stream, step, b = self.stream[rows], self.asked[rows], self.settings.pixels
        weight = self.grid.centre.square().float()
        race = rng.exponential(rng.bits(stream, step, _PLACE, len(weight))) / weight
        pixel = rng.winners(race, b)
        count = len(self.grid.colours)
        colour = rng.bits(stream, step, _PAINT, b).long() % count
        own = self.images[rows].gather(1, pixel[:, :, None].expand(-1, -1, self.images.shape[2]))
        same = (self.grid.colours[colour] == own).all(2)
        return pixel, torch.where(same, count - 1 - colour, colour)  # the opposite corner

    def _propose(self) -> tuple[Tensor, Tensor]:
        """Take out of the best mask what it misses least, and put in what promises most."""
        n, b = self.best_pixel.shape
        effect, learned = self._draw()
        own, others = self._familiar(learned.float())
        worst = (self._shares(effect) + own).argsort(dim=1, stable=True)
        pixel, colour = self.best_pixel.gather(1, worst), self.best_colour.gather(1, worst)
        swaps = self._swaps()
        swapped = torch.arange(b, device=swaps.device) < swaps[:, None]
        candidates = self._candidates()
        value = self._beside(self._values(effect, candidates), effect, pixel, colour, ~swapped)
        value = self._without(value + others, candidates, pixel, colour, swapped)
        worth, paint = value.max(1)
        top, at = worth.topk(min(int(swaps.max()), worth.shape[1]), 1)
        found = torch.zeros(n, b - at.shape[1], dtype=torch.int64, device=at.device)
        at, top = torch.cat([at, found], 1), torch.cat([top, found - torch.inf], 1)
        take = swapped & (top > -torch.inf)
        return (
            torch.where(take, candidates.gather(1, at), pixel),
            torch.where(take, paint.gather(1, at), colour),
        )

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
        seen = self.grid.at(self.grid.nearby(part[:, None], pixel), pixel)[:, 0]
        return drawn / crowd - (seen - part)

    def _beside(
        self, value: Tensor, effect: Tensor, pixel: Tensor, colour: Tensor, kept: Tensor
    ) -> Tensor:
        """``(n, k, cells)``: what effects are worth beside the elements that are kept.

        A share of the effect, less what the crowd that it joins loses; as in `_shares`, one
        denominator, crowd * (crowd + 1), serves all distances.
        """
        stays = kept.float()
        crowds = self.grid.nearby(stays[:, None], pixel)
        crowd = self.grid.at(crowds, pixel)[:, 0].clamp_min(1)
        part = stays * self._effects(effect, pixel, colour) / (crowd * (crowd + 1))
        return value / (1 + crowds) - self.grid.nearby(part[:, None], pixel)

    def _effects(self, effect: Tensor, pixel: Tensor, colour: Tensor) -> Tensor:
        """``(n, B)``: fields as the effects of elements."""
        scale = self.grid.scale(self.images, pixel, colour)
        return (self.grid.at(effect, pixel).mT * self.grid.loading[colour]).sum(2) * scale

    def _crowd(self, pixel: Tensor) -> Tensor:
        """``(n, B)``: how many pixels stand together with each, itself included."""
        alone = torch.ones_like(pixel, dtype=torch.float32)[:, None]
        return self.grid.at(self.grid.nearby(alone, pixel), pixel)[:, 0]

    def _familiar(self, learned: Tensor) -> tuple[Tensor, Tensor]:
        """What the residual says of elements that were seen before, on average.

        Returns:
            ``(n, B)``: of the elements of the best mask. Without one, it is less alike with the
            masks that have it, too.
            ``(n, k, cells)``: of all others; 0 where pixels share cells, since few come twice.
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
        if self.grid.side == 1:
            element = self.colour.clamp_min(0) * cells + self.pixel
            known = torch.where(within, 0.0, (1 / step - 1) * weight).view(n, -1)
            others.scatter_add_(1, element.view(n, -1), known)
        return own, others.view(n, k, cells)

    def _places(self, pixel: Tensor, colour: Tensor) -> Tensor:
        """``(n, memory, B)``: where in a mask each remembered element is; -1 if it is not."""
        n, memory, b = self.pixel.shape
        place = torch.full((n, self.images.shape[1]), -1, device=pixel.device)
        place.scatter_(1, pixel, torch.arange(b, device=pixel.device).expand(n, -1))
        found = place.gather(1, self.pixel.view(n, -1))
        same = colour.gather(1, found.clamp_min(0)) == self.colour.view(n, -1)
        return torch.where((found >= 0) & same, found, -1).view(n, memory, b)

    def _kinship(self, shared: Tensor) -> Tensor:
        """Covariance of the residuals of masks that share so many elements."""
        b = self.settings.pixels
        return _RESIDUAL_SHARE * b * torch.exp((shared - b) / (_RESIDUAL_REACH * b))

    def _swaps(self) -> Tensor:
        """``(n,)``: how many elements change; it falls from all to one."""
        b, age = self.settings.pixels, (self.asked - self.settings.initial).clamp_min(0)
        falling = torch.exp(-self.settings.decay * age.double())
        return (1 + (b - 1) * falling).round().long()

    def _candidates(self) -> Tensor:
        """``(n, cells)``: a pixel of each cell, a random one where there are several."""
        (h, w), (rows, columns), side = self.grid.size, self.grid.cells, self.grid.side
        n, count = len(self.asked), rows * columns
        if side == 1:
            return torch.arange(count, device=self.asked.device).repeat(n, 1)
        numbers = rng.bits(self.stream, self.asked, _CELL, 2 * count).long()
        cell = torch.arange(count, device=numbers.device)
        row = (cell // columns * side + numbers[:, :count] % side).clamp_max(h - 1)
        column = (cell % columns * side + numbers[:, count:] % side).clamp_max(w - 1)
        return row * w + column

    def _values(self, effect: Tensor, candidates: Tensor) -> Tensor:
        """``(n, k, cells)``: drawn effects of the candidates in all colours."""
        mixed = self.grid.loading @ effect
        one_each = self.grid.side == 1
        scale = self.scale if one_each else self.grid.scales(self.images, candidates)
        return torch.where(scale > 0, mixed * scale, scale)

    def _without(
        self, value: Tensor, candidates: Tensor, pixel: Tensor, colour: Tensor, swapped: Tensor
    ) -> Tensor:
        """No pixel twice, no element back that is just taken out, nothing tried in vain."""
        n, k, _ = value.shape
        state = torch.full((n, self.images.shape[1]), -1, device=value.device)
        state.scatter_(1, pixel, torch.where(swapped, colour, k))  # k: stays
        there = state.gather(1, candidates)[:, None]
        every = torch.arange(k, device=value.device)[:, None]
        value = value.masked_fill((there == k) | (there == every), -torch.inf)
        new = value.masked_fill(self.tried, -torch.inf)
        return torch.where((new > -torch.inf).flatten(1).any(1)[:, None, None], new, value)

    def _draw(self) -> tuple[Tensor, Tensor]:
        """A draw from the posterior, ``(n, fields, cells)``, and weights of what is remembered.

        It is a draw from the prior, corrected by what it gets wrong about the observations
        (Matheron's rule). The weights, ``(n, memory)``, are those of the mean.
        """
        y, known = self._observed()
        prior = self.grid.draw(self._numbers(_FIELD, self.grid.fields * self.grid.count))
        residual = self._numbers(_RESIDUAL, _FEATURES)
        share = _RESIDUAL_SHARE * self.settings.pixels / _FEATURES
        wrong = math.sqrt(share) * (self.parity @ residual[:, :, None])[:, :, 0]
        noise = math.sqrt(_NOISE) * self._numbers(_NOISE_DRAW, self.z.shape[1])
        said = (self._look_up(prior) + wrong + noise).double() * known
        weight = self.inverse @ torch.stack([y, said], 2)
        scale = ((y * weight[:, :, 0]).sum(1) / known.sum(1)).clamp_min(1e-12).sqrt()[:, None]
        scale = _DARING * scale
        alpha = weight[:, :, 0] - scale * weight[:, :, 1]
        drawn = self.grid.smooth(self._spread(alpha.float())) + scale[:, :, None].float() * prior
        return drawn, weight[:, :, 0]

    def _observed(self) -> tuple[Tensor, Tensor]:
        """``(n, memory)`` each: scores relative to random masks, and where there are any."""
        known = (self.colour[:, :, 0] >= 0).double()
        random = (self.base / self.counted)[:, None]
        return ((self.z - random) @ self._direction()[:, :, None])[:, :, 0] * known, known

    def expected_effects(self) -> Tensor:
        """``(n, k, pixels)``: the posterior mean of the effect of every pixel in every colour.

        It is for people to look at; the search itself draws. NaN where a colour is the pixel's own.
        """
        y, _ = self._observed()
        weight = (self.inverse @ y[:, :, None])[:, :, 0]
        fields = self.grid.smooth(self._spread(weight.float()))
        everywhere = torch.arange(self.images.shape[1], device=y.device).expand(len(y), -1)
        scale = self.grid.scales(self.images, everywhere)
        effect = (self.grid.loading @ fields)[:, :, self.grid.cell_of] * scale
        return effect.masked_fill(scale == -torch.inf, torch.nan)

    def _direction(self) -> Tensor:
        """``(n, classes)``: the slope of the aim's log-odds at the best mask."""
        others = self.best_z.masked_fill(~self.heard, -torch.inf)[:, 1:].softmax(1)
        return self.sign * torch.cat([torch.ones_like(others[:, :1]), -others], 1)

    def _numbers(self, tag: int, count: int) -> Tensor:
        """``(n, count)`` independent numbers of mean 0 and variance 1.

        They are uniform: sums of many are normal, and only sums are used.
        """
        numbers = rng.uniform(rng.bits(self.stream, self.asked, tag, count))
        return (numbers.float() - 0.5) * math.sqrt(12)

    def _look_up(self, fields: Tensor) -> Tensor:
        """``(n, memory)``: sums of the effects of all remembered masks."""
        n, memory, b = self.pixel.shape
        found = self.grid.at(fields, self.pixel.view(n, -1)).mT
        return (found.view(n, memory, b, -1) * self.feature).sum((2, 3))

    def _spread(self, alpha: Tensor) -> Tensor:
        """``(n, fields, cells)``: the features of all remembered masks, weighted and summed."""
        n = len(alpha)
        values = (alpha[:, :, None, None] * self.feature).view(n, -1, self.grid.fields).mT
        return self.grid.summed(values, self.pixel.view(n, -1))

    def tell(self, feedback: Feedback) -> None:
        """Remember the mask and its scores; it may be the best."""
        self._listen(feedback)
        z = self._scores(feedback)
        self._remember(z - self.first)
        random = (self.initial() | (self.counted[:, 0] == 0)).double()[:, None]
        self.base = self.base + random * (z - self.first)
        self.counted = self.counted + random
        better = feedback.loss < self.loss
        self._rule_out(better)
        self.best_pixel = torch.where(better[:, None], self.new_pixel, self.best_pixel)
        self.best_colour = torch.where(better[:, None], self.new_colour, self.best_colour)
        self.best_z = torch.where(better[:, None], z, self.best_z)
        self.loss = torch.where(better, feedback.loss, self.loss)
        self.asked = self.asked + 1
        self.given = torch.zeros_like(self.given)

    def _rule_out(self, better: Tensor) -> None:
        """Elements of a mask that was not better are tried; a better one makes all new."""
        n, k, cells = self.tried.shape
        element = self.new_colour * cells + self.grid.cell_of[self.new_pixel]
        chosen = (~self.initial())[:, None].expand_as(element)
        tried = self.tried.view(n, -1).scatter(1, element, chosen)
        self.tried = (tried & ~better[:, None]).view(n, k, cells)

    def _listen(self, feedback: Feedback) -> None:
        """Where this is the first answer: choose the classes that compete with the aim."""
        new = self.counted[:, 0] == 0
        if not bool(new.any()):
            return
        scores = feedback.scores.double()
        others = scores.scatter(1, self.aim[:, None], -torch.inf)
        count = min(_CLASSES, scores.shape[1])
        chosen = torch.cat([self.aim[:, None], others.topk(count - 1, 1).indices], 1)
        padded = self.aim[:, None].expand(-1, _CLASSES - count)
        self.classes = torch.where(new[:, None], torch.cat([chosen, padded], 1), self.classes)
        self.heard = torch.arange(_CLASSES, device=new.device).expand_as(self.heard) < count
        least = scores.masked_fill(scores <= 0, torch.inf).amin(1, keepdim=True) / 2
        self.floor = torch.where(new[:, None], least, self.floor)
        self.first = torch.where(new[:, None], self._scores(feedback), self.first)

    def _scores(self, feedback: Feedback) -> Tensor:
        """``(n, classes)``: logits or log-probabilities of the classes that are listened to."""
        scores = feedback.scores.double()
        if feedback.output == "probabilities":
            scores = scores.clamp_min(self.floor).log()
        return scores.gather(1, self.classes)

    def _remember(self, z: Tensor) -> None:
        """Put the mask into the next slot, and the inverse right."""
        n, memory, _ = self.pixel.shape
        rows, slot = torch.arange(n, device=z.device), self.asked % memory
        self._forget(rows, slot)
        scale = self.grid.scale(self.images, self.new_pixel, self.new_colour)
        share = scale / self._crowd(self.new_pixel)
        feature = share[:, :, None] * self.grid.loading[self.new_colour]
        self.pixel[rows, slot], self.colour[rows, slot] = self.new_pixel, self.new_colour
        self.feature[rows, slot], self.z[rows, slot] = feature, z
        self.parity[rows, slot] = self._signs()
        known = (self.colour[:, :, 0] >= 0).double()
        alike = self._look_up(self.grid.smooth(self.grid.summed(feature.mT, self.new_pixel)))
        shared = (self._places(self.new_pixel, self.new_colour) >= 0).sum(2)
        alike = (alike + self._kinship(shared)).double() + _CONSTANT
        alike = alike * known
        alike[rows, slot] += _NOISE
        self.covariance[rows, slot] = alike
        self.covariance[rows, :, slot] = alike
        own = alike[rows, slot].clone()
        alike[rows, slot] = 0.0
        v = (self.inverse @ alike[:, :, None])[:, :, 0]
        left = (own - (alike * v).sum(1)).clamp_min(_NOISE / 2)
        v[rows, slot] = -1.0
        self.inverse.baddbmm_(v[:, :, None], (v / left[:, None])[:, None])
        self._refresh(memory)

    def _forget(self, rows: Tensor, slot: Tensor) -> None:
        """Take the observation in ``slot``, if there is one, out of the inverse."""
        if int(self.asked.max()) < self.pixel.shape[1]:
            return
        column = self.inverse[rows, slot]
        own = column[rows, slot][:, None]
        factor = torch.where(own > 0, -column / own, 0.0)
        self.inverse.baddbmm_(column[:, :, None], factor[:, None])
        self.inverse[rows, slot] = 0.0
        self.inverse[rows, :, slot] = 0.0

    def _refresh(self, memory: int) -> None:
        """Now and then, invert anew: replacing observations adds up rounding errors."""
        stale = (self.asked > memory) & (self.asked % _REFRESH == 0)
        if bool(stale.any()):
            at = stale.nonzero()[:, 0]
            self.inverse[at] = torch.linalg.inv(self.covariance[at])

    def _signs(self) -> Tensor:
        """``(n, features)``: products of the random signs of the elements of the new mask."""
        elements = self.new_pixel * len(self.grid.colours) + self.new_colour
        stream = rng.streams(0, elements.flatten())
        mean = math.exp(-1 / (2 * _RESIDUAL_REACH * self.settings.pixels))
        negative = rng.bits(stream, 0, _SIGN, _FEATURES) >= int((1 + mean) / 2 * 2**31)
        odd = negative.view(*elements.shape, _FEATURES).sum(1) % 2
        return 1.0 - 2.0 * odd.float()
