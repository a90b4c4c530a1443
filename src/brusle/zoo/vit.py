"""A small vision transformer for 32 x 32 images, whose attention can be read.

Patches come from three small convolutions instead of one cut into squares (Xiao et al., "Early
Convolutions Help Transformers See Better", NeurIPS 2021; Hassani et al., "Escaping the Big Data
Paradigm with Compact Transformers", 2021): without millions of images, a transformer learns little
from raw squares. From there on it is a plain pre-norm encoder (Dosovitskiy et al., ICLR 2021) with
learned positions and the mean of the tokens as the feature.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brusle import normalisation
from brusle.zoo.resnet import CIFAR10_MEAN, CIFAR10_STD


class Attention(nn.Module):
    """Multi-head self-attention over ``(n, tokens, width)``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x)[0]

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mixed tokens, and the weights ``(n, heads, tokens, tokens)``: row looks at column.

        Written out because the fused kernel hides the weights, and is slower on a CPU for so few
        tokens.
        """
        n, tokens, width = x.shape
        qkv = self.qkv(x).view(n, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).softmax(3)
        return self.out((weights @ v).transpose(1, 2).flatten(2)), weights


class Block(nn.Module):
    """Attention and a two-layer net, each behind a layer norm and beside a shortcut."""

    def __init__(self, width: int, heads: int, expansion: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, expansion * width), nn.GELU(), nn.Linear(expansion * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        result: Tensor = x + self.mlp(self.norm2(x))
        return result


class SmallViT(nn.Module):
    """A transformer on an 8 x 8 grid of tokens; images in [0, 1] in, logits out."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        classes: int = 10,
        width: int = 96,
        depth: int = 4,
        heads: int = 3,
        expansion: int = 3,
        size: int = 32,
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(CIFAR10_MEAN).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(CIFAR10_STD).view(1, -1, 1, 1))
        self.stem = nn.Sequential(
            nn.Conv2d(3, width // 3, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width // 3),
            nn.ReLU(),
            nn.Conv2d(width // 3, 2 * width // 3, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width // 3),
            nn.ReLU(),
            nn.Conv2d(2 * width // 3, width, 3, stride=2, padding=1),
        )
        self.positions = nn.Parameter(0.02 * torch.randn(1, width, size // 4, size // 4))
        self.blocks = nn.ModuleList(Block(width, heads, expansion) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self._tokens(x)
        for block in self.blocks:
            tokens = block(tokens)
        logits: Tensor = self.head(self.norm(tokens).mean(1))
        return logits

    def attention_maps(self, x: Tensor) -> Tensor:
        """``(n, depth, heads, tokens, tokens)`` attention weights; rows sum to one."""
        tokens, maps = self._tokens(x), []
        for block in self.blocks:
            assert isinstance(block, Block)
            maps.append(block.attention.attend(block.norm1(tokens))[1])
            tokens = block(tokens)
        return torch.stack(maps, 1)

    def _tokens(self, x: Tensor) -> Tensor:
        features = self.stem(normalisation.normalise(x, self.mean, self.std))
        positions: Tensor = self.positions
        if features.shape[2:] != positions.shape[2:]:  # images of another size than learnt
            positions = F.interpolate(positions, features.shape[2:], mode="bilinear")
        tokens: Tensor = (features + positions).flatten(2).transpose(1, 2)
        return tokens
