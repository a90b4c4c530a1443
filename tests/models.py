"""Small victims with known answers, in integer arithmetic: no answer depends on the batch."""

from collections.abc import Callable

import torch
from torch import Tensor

from brusle.victims import FunctionVictim, wrap


class Counting:
    """A function that counts the images it is given, before anything can go wrong."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function
        self.seen = 0
        self.batches: list[int] = []

    def __call__(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        self.batches.append(len(images))
        return self.function(images)

    def victim(self) -> FunctionVictim:
        victim = wrap(self, output="logits", name="counting", differentiable=True)
        assert isinstance(victim, FunctionVictim)
        return victim


class _StraightThrough(torch.autograd.Function):
    """A function of whole numbers whose gradient is taken to be that of the identity."""

    @staticmethod
    def forward(ctx, x, function):
        return function(x)

    @staticmethod
    def backward(ctx, slope):
        return slope, None


def levels(images: Tensor) -> Tensor:
    """8-bit integer values of images in [0, 1]."""
    return (images * 255).round().long()


def integer_model(shape: tuple[int, int, int], classes: int, seed: int = 0) -> Counting:
    """Two integer layers with a fold between them, so that pixels interact.

    The integers are kept in float64, where they are exact as well, and rounding has a gradient of
    1: white-box attacks get gradients that do not depend on the batch either.
    """
    generator = torch.Generator().manual_seed(seed)
    size = shape[0] * shape[1] * shape[2]
    first = torch.randint(-3, 4, (size, 24), generator=generator).double()
    second = torch.randint(-5, 6, (24, classes), generator=generator).double()

    def scores(images: Tensor) -> Tensor:
        whole = _StraightThrough.apply(images.double() * 255, torch.round)
        hidden = (whole.flatten(1) - 128) @ first
        logits = _StraightThrough.apply(hidden.abs() / 64, torch.floor) @ second
        # odd multiples break ties between classes
        return (logits * 8 + torch.arange(classes) % 8) / 512

    return Counting(scores)


def random_images(n: int, shape: tuple[int, int, int], seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, *shape), generator=generator).float() / 255


def own_labels(model: Counting, images: Tensor) -> Tensor:
    """What the model says to clean images, so that all of them count as correct."""
    return model.function(images).argmax(1)


def additive_model(weights: list[int], threshold: int, shape: tuple[int, int]) -> Counting:
    """Linear over pixels: class 1 wins once the weights of changed pixels reach a threshold.

    Made for grey images of level 128: a pixel counts as changed when it is black or white, the
    only colours of the binary palette. How many pixels are needed is known: add up the largest.
    """
    h, w = shape
    full = torch.zeros(h * w, dtype=torch.int64)
    full[: len(weights)] = torch.tensor(weights)
    full = full[torch.randperm(h * w, generator=torch.Generator().manual_seed(5))]

    def scores(images: Tensor) -> Tensor:
        changed = ((levels(images)[:, 0] - 128).abs() >= 127).flatten(1).long()
        gained = changed @ full
        return torch.stack([torch.full_like(gained, 2 * threshold - 1), 2 * gained], 1).double()

    return Counting(scores)


def linear_model(weights: list[int], threshold: int, shape: tuple[int, int]) -> Counting:
    """Linear over pixels and with a gradient: class 1 wins once whitening adds up to a threshold.

    On grey images of level 128 a pixel adds its weight when it turns white, a share of it when it
    turns lighter, and less than nothing when it turns darker.
    """
    h, w = shape
    full = torch.zeros(h * w, dtype=torch.float64)
    full[: len(weights)] = torch.tensor(weights).double()
    full = full[torch.randperm(h * w, generator=torch.Generator().manual_seed(5))]

    def scores(images: Tensor) -> Tensor:
        gained = (images.double()[:, 0].flatten(1) - 128 / 255) * 255 / 127 @ full
        return torch.stack([torch.full_like(gained, threshold - 0.5), gained], 1)

    return Counting(scores)


def grey_images(n: int, shape: tuple[int, int]) -> Tensor:
    return torch.full((n, 1, *shape), 128 / 255)
