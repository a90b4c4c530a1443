"""What PixelBandit knows of the effects of pixels before it sees any.

Effects are alike for neighbours and for similar colours, and larger near the centre and where the
colour differs more from the image's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from brusle.attacks.pixel_bandit.elements import Elements

_ALIKE = 0.55  # prior correlation of the effects of opposite colours
_OFFSET, _POWER = 0.02, 1.0  # effects grow with the distance of the colour from the original
_REACH, _LEAST = 27 / 32, 0.05  # and fall with the distance from the centre, in image sizes
_SAME = 1e-6  # nearer colours are equal; those of 8 bits differ by more
_CROWD_REACH = 2.0  # of the crowd, in pixels
_CELLS = 64  # most cells along a side


@dataclass(frozen=True)
class Prior:
    """The prior of the effects in images of one shape.

    Effects are a mix of smooth fields over cells of pixels: one field for all colours and one for
    each channel. In small images every pixel is a cell.

    Attributes:
        size: height and width in pixels.
        cells: the same in cells.
        side: of a cell.
        rows: ``(height, height)`` covariance between rows of cells.
        columns: likewise.
        near_rows: ``(height, height)``: how much rows of cells belong to the same crowd.
        near_columns: likewise.
        row_root: Cholesky factor of ``rows``.
        column_root: likewise.
        colours: ``(k, c)``: corners of the colour cube.
        loading: ``(k, fields)``: how an effect is mixed. That of the first field is the same for
            all colours.
        centre: ``(pixels,)`` scale by position.
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
    def pixels(self) -> int:
        return len(self.cell_of)

    @property
    def fields(self) -> int:
        return self.loading.shape[1]

    @property
    def count(self) -> int:
        """How many cells there are."""
        return self.cells[0] * self.cells[1]

    @classmethod
    @cache
    def of(
        cls,
        h: int,
        w: int,
        channels: int,
        length: float,
        device: torch.device,
        most: int = _CELLS,
    ) -> Prior:
        """The prior for a shape, if effects are alike over ``length`` pixels.

        There are at most ``most`` cells along a side.
        """
        side = -(-max(h, w) // most)
        cells = -(-h // side), -(-w // side)
        rows, columns = (_alike(count, side / length) for count in cells)
        near_rows, near_columns = (_alike(count, side / _CROWD_REACH) for count in cells)
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

    def index(self, elements: Elements) -> Tensor:
        """``(n, m)``: which of all effects, ``(n, k * cells)``, are those of elements."""
        return elements.colour * self.count + self.cell_of[elements.pixel]

    def scale(self, images: Tensor, elements: Elements) -> Tensor:
        """``(n, m)``: prior scale of elements of images, ``(n, pixels, c)``."""
        own = colours_at(images, elements.pixel)
        distance = (self.colours[elements.colour] - own).abs().mean(2)
        return self.centre[elements.pixel] * _growth(distance)

    def scales(self, images: Tensor, pixel: Tensor) -> Tensor:
        """``(n, k, m)``: that of pixels in all colours; -inf where a colour is their own."""
        own = colours_at(images, pixel)
        # |corner - own| is own where the corner is 0 and 1 - own where it is 1
        slope = (1 - 2 * self.colours) / images.shape[2]
        distance = slope @ own.mT + self.colours.mean(1)[:, None]
        scale = self.centre[pixel][:, None] * _growth(distance)
        return scale.masked_fill(distance < _SAME, -torch.inf)

    def draw(self, numbers: Tensor) -> Tensor:
        """``(n, m, cells)``: independent numbers, ``(n, m * cells)``, as draws of fields."""
        return (self.row_root @ self._plane(numbers) @ self.column_root.T).flatten(2)

    def covariance(self, index: Tensor, size: Tensor) -> Tensor:
        """``(n, k, cells)``: of all effects with a sum of some; all of scale 1.

        Args:
            index: ``(n, m)``, which, see `index`.
            size: ``(n, m)``, their factors.
        """
        k, count = len(self.colours), self.count
        some = size.new_zeros(len(size), k * count).scatter_add_(1, index, size)
        fields = self._plane(self.loading.T @ some.view(-1, k, count))
        return self.loading @ (self.rows @ fields @ self.columns).flatten(2)

    def of_elements(self, effects: Tensor, images: Tensor, elements: Elements) -> Tensor:
        """``(n, m)``: of all effects, ``(n, k, cells)`` of scale 1, those of elements."""
        found = effects.flatten(1).gather(1, self.index(elements))
        return found * self.scale(images, elements)

    def peaks(self, values: Tensor) -> Tensor:
        """``(n, cells)``: values, and -inf where a neighbouring cell has more."""
        plane = self._plane(values)
        highest = torch.nn.functional.max_pool2d(plane, 3, 1, 1)
        return plane.masked_fill(plane < highest, -torch.inf).flatten(1)

    def _plane(self, values: Tensor) -> Tensor:
        fields = math.prod(values.shape[1:]) // self.count
        return values.view(len(values), fields, *self.cells)

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


def colours_at(images: Tensor, pixel: Tensor) -> Tensor:
    """``(n, m, c)``: the colours that images, ``(n, pixels, c)``, have at pixels."""
    return images.gather(1, pixel[:, :, None].expand(-1, -1, images.shape[2]))


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
