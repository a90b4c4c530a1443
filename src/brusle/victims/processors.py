"""Hugging Face's image processors, as a framing and a normalisation.

What a processor says is read, and then compared with what it does: a picture goes through both. One
that does more than can be said in these two (turns colours round, quantises them, pads) is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brusle.data.images import Filter, Framing
from brusle.errors import VictimError, first_line
from brusle.victims.options import Normalisation

_TOLERANCE = 0.02  # of images in [0, 1]: five levels; backends differ by one or two
_LEVIT_MARGIN = 256 / 224
_WHOLE_FROM = 384  # ConvNext's processor cuts no margin off images of this size


@dataclass(frozen=True)
class Processing:
    """What a processor does.

    Attributes:
        framing: how photographs get their size.
        normalisation: of images in [0, 1].
        square: it crops nothing, so that only square photographs get that size.
    """

    framing: Framing
    normalisation: Normalisation
    square: bool = False


class ProcessingError(VictimError):
    """A processor does something that is no framing and no normalisation."""


def read_processor(processor: Any, channels: int) -> Processing:
    """What ``processor`` says and does.

    Args:
        processor: of transformers.
        channels: of the model's images.

    Raises:
        ProcessingError: it cannot be said, or what it says is not what it does.
    """
    said = processor.to_dict()
    try:
        framing, square = _framing(said)
        found = Processing(framing, _normalisation(said, channels), square)
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise ProcessingError(f"its settings are unusual ({first_line(error)})") from error
    if not _is_covered(framing):
        raise ProcessingError("it crops more than it leaves after resizing, and pads")
    _compare(processor, found, channels)
    return found


def _framing(said: Mapping[str, Any]) -> tuple[Framing, bool]:
    """The framing, and whether it suits square photographs only."""
    kind = str(said.get("image_processor_type", ""))
    if not said.get("do_resize") or not said.get("size"):
        raise ProcessingError("it leaves images in the size that they have")
    how = cast(Filter, Image.Resampling(said["resample"]).name.lower())
    size = {key: value for key, value in dict(said["size"]).items() if value is not None}
    if kind.startswith("ConvNext"):
        return _convnext(int(size["shortest_edge"]), float(said["crop_pct"]), how), False
    resize = _resize(kind, size, said.get("crop_pct"))
    if said.get("do_center_crop"):
        crop = said["crop_size"]
        return Framing(resize, (int(crop["height"]), int(crop["width"])), how, "floor"), False
    if isinstance(resize, int):
        return Framing(resize, (resize, resize), how, "floor"), True
    return Framing(resize, resize, how, "floor"), False


def _is_covered(framing: Framing) -> bool:
    """Whether what is left after resizing has the size of the crop."""
    resize = framing.resize
    height, width = resize if isinstance(resize, tuple) else (resize or 0, resize or 0)
    return height >= framing.crop[0] and width >= framing.crop[1]


def _resize(kind: str, size: Mapping[str, int], kept: float | None) -> int | tuple[int, int]:
    """Length of the shorter side, or height and width.

    Args:
        kind: class of the processor.
        size: what it says.
        kept: the share of a side that is not cut off.
    """
    if set(size) == {"shortest_edge"}:
        margin = _LEVIT_MARGIN if kind.startswith("Levit") else 1 / (kept or 1)
        return int(margin * size["shortest_edge"])
    if set(size) == {"height", "width"} and kept is None:
        return int(size["height"]), int(size["width"])
    raise ProcessingError(f"it resizes by {', '.join(size)}")


def _convnext(side: int, kept: float, how: Filter) -> Framing:
    """Of ConvNext, which ResNet, RegNet and CvT use, too: small images lose a margin."""
    resize = int(side / kept) if side < _WHOLE_FROM else (side, side)
    return Framing(resize, (side, side), how, "floor")


def _normalisation(said: Mapping[str, Any], channels: int) -> Normalisation:
    """Mean and deviation for images in [0, 1], also if the processor counts in other units."""
    levels = 255 * (said.get("rescale_factor", 1 / 255) if said.get("do_rescale") else 1)
    mean, std = (0.0,) * channels, (1.0,) * channels
    if said.get("do_normalize"):
        mean, std = (_each(said[key], channels) for key in ("image_mean", "image_std"))
        if said.get("include_top") and str(said.get("image_processor_type")).startswith("Eff"):
            std = tuple(one**2 for one in std)  # EfficientNet's divides once more
    return Normalisation(tuple(m / levels for m in mean), tuple(s / levels for s in std))


def _each(numbers: Any, channels: int) -> tuple[float, ...]:
    """One number for each channel."""
    each = (numbers,) * channels if isinstance(numbers, int | float) else tuple(numbers)
    if len(each) != channels:
        raise ProcessingError(f"it normalises {len(each)} channels and not {channels}")
    return tuple(float(one) for one in each)


def _compare(processor: Any, found: Processing, channels: int) -> None:
    """Raise unless a picture comes out of ``processor`` as it does out of what was ``found``."""
    picture = _picture(found, channels)
    mean, std = (
        torch.tensor(values)[:, None, None]
        for values in (found.normalisation.mean, found.normalisation.std)
    )
    try:
        theirs: Tensor = processor(images=picture, return_tensors="pt")["pixel_values"][0]
    except Exception as error:  # whatever a processor raises, it is not ours
        raise ProcessingError(f"it fails on a picture ({first_line(error)[:120]})") from error
    levels = torch.from_numpy(np.asarray(found.framing.apply(picture), dtype=np.float32))
    ours = levels.reshape(*found.framing.crop, channels).permute(2, 0, 1) / 255
    if theirs.shape != ours.shape:
        raise ProcessingError(f"its images have the shape {tuple(theirs.shape)}")
    if float((theirs * std + mean - ours).abs().max()) > _TOLERANCE:
        raise ProcessingError("its images are not only resized, cropped and normalised")


def _picture(found: Processing, channels: int) -> Image.Image:
    """A smooth picture, each channel another, larger than what is made of it."""
    height, width = (side * 3 // 2 + 2 for side in found.framing.crop)
    if not found.square:
        width += width // 4
    down, across = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    planes = (down, 1 - across, 0.5 + 0.4 * np.sin(math.tau * (down + across) / 2))
    levels = np.rint(255 * np.stack(planes[:channels], axis=-1)).astype(np.uint8)
    return Image.fromarray(levels[..., 0] if channels == 1 else levels)
