"""What a net is made of, as far as it shows while it answers one image."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from brusle.looking.attention import UnreadableError, attention_weights, is_attention
from brusle.looking.nets import Net, with_gradients


@dataclass(frozen=True)
class Tokens:
    """The tokens of a transformer.

    Attributes:
        layers: names of its attention layers, in the order in which they answer.
        grid: rows and columns of the patches.
        before: how many tokens are in front of those of the patches: class, distillation,
            registers.
        read: ``(k,)`` numbers of the tokens that the classifier reads, all with the same weight:
            the class token, or all of those that it takes the mean of.
    """

    layers: tuple[str, ...]
    grid: tuple[int, int]
    before: int
    read: Tensor


@dataclass(frozen=True)
class Anatomy:
    """What was found.

    Attributes:
        convolution: name of the last convolution that has more than one place; empty if there is
            none, or if nothing can be known of its part in the answer.
        tokens: of a transformer whose attention can be read.
        why_no_tokens: the reason if there are none.
    """

    convolution: str
    tokens: Tokens | None
    why_no_tokens: str


def look_inside(net: Net, image: Tensor, label: int) -> Anatomy:
    """Let ``net`` answer ``image``, and watch."""
    seen = _Seen()
    with with_gradients(), net.watched(lambda part: isinstance(part, nn.Conv2d), seen.convolution):
        with net.watched(is_attention, seen.attention):
            score = net.logits(net.leaf(image[None]))[0, label]
        if not score.requires_grad:
            return Anatomy("", None, "its answer has no gradient")
        try:
            return Anatomy(seen.last, seen.tokens(score), "")
        except UnreadableError as error:
            return Anatomy(seen.last, None, str(error))


@dataclass
class _Seen:
    """What has passed by.

    Attributes:
        last: the last convolution with more than one place.
        grid: of the last convolution in front of the first attention: it makes the patches.
        layers: names of attention layers.
        counts: how many tokens each of them has.
        mixed: ``(1, tokens, width)``, or ``(tokens, 1, width)``: the output of the last one.
        trouble: why the attention of one could not be read.
    """

    last: str = ""
    grid: tuple[int, int] | None = None
    layers: list[str] = field(default_factory=list)
    counts: set[int] = field(default_factory=set)
    mixed: Tensor | None = None
    trouble: str = ""

    def convolution(self, name: str, layer: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        if out.dim() == 4 and out.shape[2] * out.shape[3] > 1:
            self.last = name
            if not self.layers:
                self.grid = (int(out.shape[2]), int(out.shape[3]))

    def attention(self, name: str, layer: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        self.layers.append(name)
        try:
            weights = attention_weights(layer, args, kwargs, out)
        except UnreadableError as error:
            self.trouble = self.trouble or f"{name}: {error}"
            return
        if len(weights) != 1:
            self.trouble = self.trouble or f"{name} looks at parts of the image one by one"
        self.counts.add(weights.shape[2])
        self.mixed = out[0] if isinstance(out, tuple) else out

    def tokens(self, score: Tensor) -> Tokens:
        """The tokens, if there are such; ``score`` is what the net has said."""
        if not self.layers:
            raise UnreadableError("it has no attention layers that are known here")
        if self.trouble:
            raise UnreadableError(self.trouble)
        assert self.mixed is not None  # where there is no trouble
        patches = 0 if self.grid is None else self.grid[0] * self.grid[1]
        if self.grid is None or len(self.counts) > 1 or max(self.counts) < patches:
            raise UnreadableError("its tokens are not those of one grid of patches")
        (count,) = self.counts
        # what follows treats tokens one by one: those that make no difference are not read
        (slope,) = torch.autograd.grad(score, self.mixed)
        read = slope.reshape(count, -1).ne(0).any(1).nonzero()[:, 0].cpu()
        before = count - patches
        if not len(read):
            raise UnreadableError("its answer does not depend on its tokens")
        if 0 < int((read >= before).sum()) < patches:
            raise UnreadableError("its classifier reads some of the patches only")
        return Tokens(tuple(self.layers), self.grid, before, read)
