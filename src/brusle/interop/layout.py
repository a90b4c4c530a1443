"""How other libraries hold images, and how to get there and back.

Inside of brusle images are ``(n, c, h, w)`` in [0, 1]. Others have other ranges and put channels at
the end. On the way back, values that the attack did not change are the caller's own, to the bit, so
that whoever counts differences counts those that the attack made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brusle.errors import InputError
from brusle.problems import to_levels

_ROUNDING = 1e-6  # what a change of range and back costs in float32


@dataclass(frozen=True)
class Layout:
    """A range of values, and an order of axes.

    Attributes:
        low: the smallest value.
        high: the largest value.
        channels_last: ``(n, h, w, c)`` instead of ``(n, c, h, w)``.
    """

    low: float = 0.0
    high: float = 1.0
    channels_last: bool = False

    def inward(self, images: Tensor) -> Tensor:
        """The caller's images as brusle has them.

        What was an 8-bit image before its range was changed is one again.
        """
        self._check(images)
        if self.channels_last:
            images = images.permute(0, 3, 1, 2)
        if (self.low, self.high) == (0.0, 1.0):
            return images
        return on_levels((images - self.low) / (self.high - self.low))

    def outward(self, images: Tensor) -> Tensor:
        """Images of brusle as the caller has them."""
        if self.channels_last:
            images = images.permute(0, 2, 3, 1)
        if (self.low, self.high) == (0.0, 1.0):
            return images
        return images * (self.high - self.low) + self.low

    def put_back(self, theirs: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """The caller's images with the changes that an attack has made.

        Args:
            theirs: the caller's images.
            before: the same, as the attack was given them.
            after: as the attack returned them.
        """
        changed = before != after
        if self.channels_last:
            changed = changed.permute(0, 2, 3, 1)
        new = self.outward(after).to(theirs.device, theirs.dtype)
        return torch.where(changed.to(theirs.device), new, theirs)

    def _check(self, images: Tensor) -> None:
        if images.dim() != 4 or not len(images):
            order = "height, width, channels" if self.channels_last else "channels, height, width"
            raise InputError(
                f"images have shape {tuple(images.shape)}: give (number, {order}), at least one"
            )
        if not images.is_floating_point():
            raise InputError(f"images have dtype {images.dtype}: give floats")
        low, high = (float(end) for end in images.aminmax())
        slack = _ROUNDING * (self.high - self.low)  # their own range may be rounded, too
        if not (low >= self.low - slack and high <= self.high + slack):
            raise InputError(
                f"images reach from {low:g} to {high:g}, but are declared to lie in "
                f"[{self.low:g}, {self.high:g}]"
            )


def on_levels(images: Tensor) -> Tensor:
    """Take back what a change of range has cost.

    Images whose values are all 8-bit levels but for rounding have exactly these; others just stay
    within [0, 1].
    """
    levels = to_levels(images).to(images.dtype)
    near = ((images - levels).abs() <= _ROUNDING).flatten(1).all(1)
    inside = images.clamp(0, 1)
    inside = torch.where((images - inside).abs() <= _ROUNDING, inside, images)
    return torch.where(near[:, None, None, None], levels, inside)
