"""CIFAR-style residual nets (He et al., "Deep Residual Learning", CVPR 2016, section 4.2).

Three stages of ``blocks`` basic blocks each with 16, 32 and 64 channels; ``blocks=3`` is
ResNet-20. Shortcuts that change shape are 1x1 convolutions (option B of the paper): they are
a little more accurate than padding with zeros and export cleanly to every runtime.
Normalisation is part of the net, so images in [0, 1] go in and logits come out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brusle import normalisation

CIFAR10_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR10_STD = (0.2470, 0.2435, 0.2616)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class CifarResNet(nn.Module):
    """A residual net of 6 * ``blocks`` + 2 layers for small images."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        blocks: int = 3,
        classes: int = 10,
        mean: tuple[float, ...] = CIFAR10_MEAN,
        std: tuple[float, ...] = CIFAR10_STD,
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))
        self.stem = nn.Conv2d(len(mean), 16, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        layers: list[nn.Module] = []
        channels = 16
        for stage, width in enumerate((16, 32, 64)):
            for block in range(blocks):
                layers.append(BasicBlock(channels, width, 2 if stage > 0 and block == 0 else 1))
                channels = width
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.stem(normalisation.normalise(x, self.mean, self.std))))
        logits: Tensor = self.head(self.layers(x).mean(dim=(2, 3)))
        return logits


def resnet20(classes: int = 10) -> CifarResNet:
    """ResNet-20: 0.27 million weights, about 1 MB."""
    return CifarResNet(blocks=3, classes=classes)
