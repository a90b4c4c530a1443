"""What is asked: images, their labels, and for targeted attacks the labels to reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brusle.errors import InputError
from brusle.rng import content_id
from brusle.rows import Rows


@dataclass(frozen=True)
class Problems:
    """A batch of attack problems; one entry of each field per problem.

    Build it with `Problems.make`, which checks everything that can be checked without the model.

    Attributes:
        images: ``(n, c, h, w)`` float32 in [0, 1], on the CPU.
        labels: ``(n,)`` int64, the true labels.
        targets: ``(n,)`` int64 labels to reach, or None for an untargeted attack.
        ids: ``(n,)`` int64. Random numbers depend on them and not on the position in the batch.
        starts: ``(n, c, h, w)`` starting images, for the attacks that want one.
    """

    images: Tensor
    labels: Tensor
    targets: Tensor | None
    ids: Tensor
    starts: Tensor | None = None

    @classmethod
    def make(
        cls,
        images: Any,
        labels: Any,
        targets: Any = None,
        ids: Any = None,
        starts: Any = None,
    ) -> Problems:
        """Check the user's arrays (torch or NumPy) and turn them into problems.

        Ids default to a hash of image, label and target, so that the same image gets the same
        random numbers alone, in a batch, and in any order.
        """
        images = _images(images, "images")
        labels = _labels(labels, "labels", len(images))
        if targets is not None:
            targets = _labels(targets, "targets", len(images))
            same = (targets == labels).nonzero()[:, 0]
            if len(same):
                raise InputError(
                    f"the target of image {int(same[0])} equals its label "
                    f"({int(labels[same[0]])}): choose another target"
                )
        if starts is not None:
            starts = _images(starts, "starts")
            if starts.shape != images.shape:
                raise InputError(
                    f"starts have shape {tuple(starts.shape)} but images {tuple(images.shape)}: "
                    f"give one starting image of the same size per image"
                )
        if ids is None:
            aims = labels[:, None] if targets is None else torch.stack([labels, targets], 1)
            pairs = zip(images.numpy(), aims.numpy(), strict=True)
            ids = [content_id(image.tobytes(), aim.tobytes()) for image, aim in pairs]
        ids = _labels(ids, "ids", len(images), least=None)
        return cls(images, labels, targets, ids, starts)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor | list[int] | slice) -> Problems:
        def pick(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[rows]

        return Problems(
            self.images[rows],
            self.labels[rows],
            pick(self.targets),
            self.ids[rows],
            pick(self.starts),
        )

    def to(self, device: torch.device) -> Problems:
        """The same problems with all tensors on ``device``."""

        def move(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.to(device)

        images, labels, ids = (t.to(device) for t in (self.images, self.labels, self.ids))
        return Problems(images, labels, move(self.targets), ids, move(self.starts))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        _, c, h, w = self.images.shape
        return c, h, w

    @property
    def flat_images(self) -> Tensor:
        """``(n, h * w, c)``: one row per pixel, the layout in which pixels are edited."""
        return flatten_pixels(self.images)

    def check_classes(self, classes: int) -> None:
        """Raise if a label or target is not one of the victim's ``classes``."""
        for name, values in (("label", self.labels), ("target", self.targets)):
            if values is None:
                continue
            bad = ((values < 0) | (values >= classes)).nonzero()[:, 0]
            if len(bad):
                raise InputError(
                    f"{name} {int(values[bad[0]])} of image {int(bad[0])} is out of range: the "
                    f"victim has {classes} classes, so {name}s go from 0 to {classes - 1}"
                )


@dataclass
class Edits(Rows):
    """One sparse candidate per problem: which pixels get which colours.

    Attributes:
        index: ``(n, k)`` int64 positions ``row * width + column``, all different in a row, or equal
            ones with equal colours.
        colour: ``(n, k, c)`` new values of those pixels.
    """

    index: Tensor
    colour: Tensor

    def render(self, flat_images: Tensor, shape: tuple[int, int, int]) -> Tensor:
        """Paint the edits on ``(n, h * w, c)`` images; return ``(n, c, h, w)``.

        The result is a view in channels_last layout: no second copy for models that want it.
        """
        index = self.index[:, :, None].expand(-1, -1, shape[0])
        return unflatten_pixels(flat_images.scatter(1, index, self.colour), shape)


@dataclass
class Dense(Rows):
    """One whole image per problem, for attacks that do not think in few pixels.

    Attributes:
        pixels: ``(n, h * w, c)``.
    """

    pixels: Tensor

    def render(self, flat_images: Tensor, shape: tuple[int, int, int]) -> Tensor:
        """The images as ``(n, c, h, w)``; nothing is left of ``flat_images``."""
        return unflatten_pixels(self.pixels, shape)


Candidates = Edits | Dense


def flatten_pixels(images: Tensor) -> Tensor:
    """``(n, c, h, w)`` to ``(n, h * w, c)``."""
    return images.flatten(2).transpose(1, 2).contiguous()


def unflatten_pixels(flat: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """``(n, h * w, c)`` to ``(n, c, h, w)``, as a view."""
    c, h, w = shape
    return flat.view(-1, h, w, c).permute(0, 3, 1, 2)


def to_levels(colour: Tensor) -> Tensor:
    """Values in [0, 1] rounded to 8-bit levels: what a PNG can hold."""
    return (colour * 255).round().clamp(0, 255).float() / 255


def changed_pixels(a: Tensor, b: Tensor) -> Tensor:
    """``(n,)``: in how many pixels, whatever the channel, two batches of images differ."""
    return (a != b).any(dim=1).flatten(1).sum(dim=1)


_LEVELS = {torch.uint8: 255, torch.uint16: 65535}
_CHANNELS = (1, 3, 4)  # that images have as a rule


def _images(values: Any, name: str) -> Tensor:
    images = torch.as_tensor(values).detach().cpu()
    shape = tuple(images.shape)
    if len(shape) != 4 or min(shape) < 1:
        raise InputError(
            f"{name} have shape {shape}: give (number, channels, height, width), for one image "
            f"x[None]"
        )
    if shape[3] in _CHANNELS and min(shape[1:3]) > max(_CHANNELS):
        raise InputError(
            f"{name} have shape {shape}, with channels at the end: give (number, channels, height, "
            f"width), as in x.transpose(0, 3, 1, 2) with NumPy or x.permute(0, 3, 1, 2) with torch"
        )
    if shape[2] * shape[3] < 2:
        raise InputError(f"{name} are single pixels: an attack on few pixels needs more of them")
    if not images.is_floating_point():
        most = _LEVELS.get(images.dtype, 255)
        raise InputError(
            f"{name} have dtype {images.dtype}: give floats in [0, 1], as in x / {most}"
        )
    images = images.float().contiguous()
    low, high = images.aminmax()
    if low >= 0 and high <= 1:
        return images
    bad = (~images.isfinite()).flatten(1).any(1).nonzero()[:, 0]
    if len(bad):
        what = "NaN" if bool(images[bad[0]].isnan().any()) else "infinite values"
        raise InputError(
            f"{name} have {what} ({len(bad)} of {len(images)}, the first is number {int(bad[0])}): "
            f"give finite numbers in [0, 1]"
        )
    raise InputError(
        f"{name} must lie in [0, 1] but reach from {float(low):g} to {float(high):g}: scale "
        f"them, as in x / 255, and put normalisation inside the model (brusle.victims.normalised)"
    )


def _labels(values: Any, name: str, count: int, least: int | None = 0) -> Tensor:
    try:
        labels = torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"{name} are no integers ({error})") from error
    if labels.dim() == 0:
        labels = labels.expand(count)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"{name} have dtype {labels.dtype}: give integers")
    if labels.shape != (count,):
        raise InputError(
            f"{name} have shape {tuple(labels.shape)}: give one integer for each of {count} images"
        )
    labels = labels.long()
    if least is not None and len(labels) and int(labels.min()) < least:
        raise InputError(f"{name} must not be negative, but one is {int(labels.min())}")
    return labels.contiguous()
