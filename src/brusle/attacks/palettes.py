"""Synthetic colour images x': the colours that a pixel gets if it is selected.

The paper's appendix on synthetic images compares these. All colours are 8-bit levels, so that
an adversarial image survives being saved as PNG.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brusle import rng
from brusle.problems import Edits, Problems, flatten_pixels, to_levels
from brusle.rng import Purpose
from brusle.rows import Rows

Palette = Literal["binary", "uniform", "gaussian", "inverted", "inverted-levels", "image"]


@dataclass
class SyntheticImage(Rows):
    """One synthetic image x' per problem, in which a pixel may have several colours.

    What can be selected is an *arm*: a pixel in one of its colours, number
    ``pixel * colours + colour``. With one colour per pixel, as in the paper, arms are pixels.

    Attributes:
        colour: ``(n, arms, c)``.
        colours: how many a pixel has.
    """

    colour: Tensor
    colours: int

    def edits(self, arms: Tensor) -> Edits:
        """``(n, k)`` arms as edits of pixels."""
        return Edits(arms // self.colours, self.colour.gather(1, self._deep(arms)))

    def siblings(self, arms: Tensor) -> Tensor:
        """The arms of the same pixels in all their colours."""
        if self.colours == 1:
            return arms
        first = arms // self.colours * self.colours
        return (first[:, :, None] + torch.arange(self.colours, device=arms.device)).flatten(1)

    def take_in(self, edits: Edits) -> Tensor:
        """Let pixels have the colours of ``edits``, as their first ones; return their arms."""
        arms = edits.index * self.colours
        self.colour.scatter_(1, self._deep(arms), edits.colour)
        return arms

    def dissimilarity(self, problems: Problems) -> Tensor:
        """``(n, arms)``: the map M, mean difference from the image's own colours (equation 11)."""
        original = problems.flat_images.repeat_interleave(self.colours, 1)
        return (original - self.colour).abs().mean(2)

    def _deep(self, arms: Tensor) -> Tensor:
        return arms[:, :, None].expand(-1, -1, self.colour.shape[2])


def draw(palette: Palette, problems: Problems, stream: Tensor, colours: int = 1) -> SyntheticImage:
    """Draw a synthetic image for each problem.

    * ``"binary"``: each channel 0 or 1 with equal chance (the paper's proposal).
    * ``"uniform"``: each channel uniform in [0, 1].
    * ``"gaussian"``: each channel normal(0.5, 0.17), clipped to [0, 1].
    * ``"inverted"``: each channel 0 or 1, 1 as often as in that channel of round(1 - x). The
      authors' code calls it "custom"; it reproduces the paper's table on "maximizing
      dissimilarity", where it is ahead of binary colours with few pixels.
    * ``"inverted-levels"``: each channel follows the histogram of that channel in 1 - x, in 256
      levels. So the paper's text on the same table reads, but it is far behind binary colours.
    * ``"image"``: the pixels of ``problems.starts``, such as an image of the target class.

    Args:
        palette: which of them.
        problems: the images.
        stream: ``(n,)`` random streams.
        colours: how many colours a pixel may choose from (the paper studies 1, 2 and 4).
    """
    return SyntheticImage(_colours(palette, problems, stream, colours), colours)


def _colours(palette: Palette, problems: Problems, stream: Tensor, colours: int) -> Tensor:
    n, (c, h, w) = len(problems), problems.shape
    count = h * w * colours
    if palette == "image":
        assert problems.starts is not None  # BruSLe.check has said so politely
        return flatten_pixels(problems.starts)
    numbers = rng.bits(stream, 0, Purpose.PALETTE, count * c)
    if palette == "inverted-levels":
        pixel = numbers.long() % (h * w)
        return to_levels((1 - problems.flat_images).gather(1, pixel.view(n, count, c)))
    u = rng.uniform(numbers).view(n, count, c)
    if palette == "binary":
        return (u < 0.5).float()
    if palette == "inverted":
        ones = (1 - problems.flat_images).round().mean(1, keepdim=True, dtype=torch.float64)
        return (u < ones).float()
    if palette == "gaussian":
        u = 0.5 + 0.17 * torch.special.ndtri(u)
    return to_levels(u)
