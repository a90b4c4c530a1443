"""Synthetic colour images x': the colour that a pixel gets if it is selected.

The paper's appendix on synthetic images compares these. All colours are 8-bit levels, so that
an adversarial image survives being saved as PNG.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from brusle import rng
from brusle.problems import Problems, flatten_pixels, to_levels

Palette = Literal["binary", "uniform", "gaussian", "inverted", "inverted-levels", "image"]
PALETTES: tuple[Palette, ...] = get_args(Palette)
_TAG = 15  # the searches use the tags below


def draw(palette: Palette, problems: Problems, stream: Tensor, colours: int = 1) -> Tensor:
    """``(n, h * w * colours, c)``: the colours of each pixel, next to each other.

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
    n, (c, h, w) = len(problems), problems.shape
    count = h * w * colours
    if palette == "image":
        assert problems.starts is not None  # BruSLe.check has said so politely
        return flatten_pixels(problems.starts)
    if palette == "inverted-levels":
        flat = 1 - problems.flat_images
        pixel = rng.bits(stream, 0, _TAG, count * c).long() % (h * w)
        return to_levels(flat.gather(1, pixel.view(n, count, c)))
    u = rng.uniform(rng.bits(stream, 0, _TAG, count * c)).view(n, count, c)
    if palette == "binary":
        return (u < 0.5).float()
    if palette == "inverted":
        ones = (1 - problems.flat_images).round().mean(1, keepdim=True, dtype=torch.float64)
        return (u < ones).float()
    if palette == "gaussian":
        u = 0.5 + 0.17 * torch.special.ndtri(u)
    return to_levels(u)
