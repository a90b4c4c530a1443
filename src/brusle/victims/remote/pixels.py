"""Images as tensors of numbers: the order of their axes, and their type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from brusle.victims.remote.service import Images, levels

Layout = Literal["nchw", "nhwc"]
Numbers = Literal["float32", "uint8"]
_CHANNELS = (3, 1, 4)  # the likeliest first


def laid_out(images: Images, layout: Layout, numbers: Numbers) -> NDArray[Any]:
    """Images with their axes in this order: float32 in [0, 1], or 8-bit levels."""
    values: NDArray[Any] = levels(images) if numbers == "uint8" else images
    return np.ascontiguousarray(values.transpose(0, 2, 3, 1) if layout == "nhwc" else values)


def find_layout(axes: Sequence[int], otherwise: Layout) -> Layout:
    """The order of three axes whose sizes are known, by which may be that of the channels."""
    for channels in _CHANNELS:
        if len(axes) == 3 and (axes[0] == channels) != (axes[2] == channels):
            return "nchw" if axes[0] == channels else "nhwc"
    return otherwise


def find_shape(axes: Sequence[int], layout: Layout) -> tuple[int, int, int] | None:
    """(channels, height, width) of three axes; None if one may have any size."""
    if len(axes) != 3 or min(axes) < 1:
        return None
    first, second, third = axes
    return (first, second, third) if layout == "nchw" else (third, first, second)


def whole_numbers(shape: Any) -> list[int]:
    """Sizes that a server says; none if they are no numbers."""
    try:
        return [int(side) for side in shape or []]
    except (TypeError, ValueError):
        return []
