"""A kind of victim: a nearest-mean classifier, ``nearest-mean:FILE.npz?sharpness=5``.

The file holds ``means``, one (c, h, w) image for each class, and ``names``, what these are called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from brusle.scores import Output


@dataclass
class NearestMean:
    """Scores fall with the distance from the mean image of a class."""

    name: str
    means: Tensor
    classes: list[str]
    sharpness: float
    device: torch.device
    output: ClassVar[Output] = "logits"

    def __call__(self, images: Tensor) -> Tensor:
        """``(n, c, h, w)`` images in [0, 1] to ``(n, classes)`` logits."""
        return -self.sharpness * torch.cdist(images.flatten(1), self.means.flatten(1))


def load(rest: str, device: torch.device, sharpness: float = 1.0) -> NearestMean:
    """What ``nearest-mean:rest?sharpness=...`` asks for."""
    with np.load(rest) as file:  # arrays only: a file from elsewhere runs no code
        means, names = torch.from_numpy(file["means"]).float(), file["names"].tolist()
    return NearestMean("nearest-mean", means.to(device), names, sharpness, device)
