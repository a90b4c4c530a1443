"""Single images from and to files, and how photographs are brought to a model's size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from brusle.errors import DataError, InputError

Shape = tuple[int, int, int]  # channels, height, width
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class Framing:
    """How a photograph of any size becomes an image of the victim's: resize, then centre crop.

    Attributes:
        resize: length of the shorter side after resizing; None does not resize.
        crop: (height, width) that is cut from the middle.
        filter: how pixels are resampled.
    """

    resize: int | None
    crop: tuple[int, int]
    filter: Literal["bilinear", "bicubic"] = "bilinear"

    def apply(self, image: Image.Image) -> Image.Image:
        """Resize and crop, as torchvision's transforms do on PIL images."""
        if self.resize is not None:
            short = min(image.size)
            size = [int(side * self.resize / short) for side in image.size]
            how = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
            image = image.resize((size[0], size[1]), how[self.filter])
        width, height = image.size
        h, w = self.crop
        if height < h or width < w:
            raise InputError(
                f"{height} x {width} pixels are less than the crop of {h} x {w}: give larger images"
            )
        top, left = round((height - h) / 2), round((width - w) / 2)
        return image.crop((left, top, left + w, top + h))


def imagenet_framing(size: tuple[int, int]) -> Framing:
    """The usual margin of ImageNet models: 256 pixels for a crop of 224."""
    return Framing(max(size) * 8 // 7, size)


def read_image(
    path: str | Path, shape: Shape | None = None, framing: Framing | None = None
) -> Tensor:
    """Read an image file as ``(c, h, w)`` float32 in [0, 1].

    Args:
        path: any format that Pillow reads.
        shape: what the victim wants; colours are converted.
        framing: how to bring another size to the victim's; None refuses other sizes.
    """
    channels = shape[0] if shape else 3
    if channels not in _MODES:
        raise InputError(f"the victim takes {channels} channels, which no image file has")
    try:
        with Image.open(path) as file:
            picture = file.convert(_MODES[channels])
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(f"cannot open {path}: {error.strerror}") from error
    except (
        UnidentifiedImageError,
        Image.DecompressionBombError,
        OSError,
        SyntaxError,
        ValueError,
    ) as error:
        raise DataError(
            f"{path} is no image that can be read ({error}): give a PNG, JPEG or similar file"
        ) from error
    if framing is not None and (shape is None or (picture.height, picture.width) != shape[1:]):
        try:
            picture = framing.apply(picture)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
    levels = np.asarray(picture)
    channels_last = levels[:, :, None] if levels.ndim == 2 else levels
    pixels = np.ascontiguousarray(channels_last.transpose(2, 0, 1), dtype=np.float32)
    image = torch.from_numpy(pixels / np.float32(255))
    if shape is not None and tuple(image.shape) != shape:
        _, h, w = shape
        raise InputError(
            f"{path} is {image.shape[1]} x {image.shape[2]} pixels, the victim takes {h} x {w}: "
            f"resize it first"
        )
    return image


def save_image(image: Tensor, path: str | Path) -> None:
    """Write a ``(c, h, w)`` image in [0, 1] as an 8-bit PNG."""
    levels = (image.detach().cpu().numpy() * 255).round().astype(np.uint8)
    pixels = levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0)
    Image.fromarray(pixels).save(path, format="PNG")
