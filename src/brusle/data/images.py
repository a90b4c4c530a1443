"""Single images from and to files, and how photographs are brought to a model's size.

Every encoded image goes through `decode_picture`, so that there is one policy: see docs/data.md.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from brusle.errors import BrusleError, DataError, InputError
from brusle.files import require_file, written
from brusle.victim import Traits

Shape = tuple[int, int, int]  # channels, height, width
Filter = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]  # Pillow's
Half = Literal["even", "floor"]
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_ALPHA = ("LA", "PA", "La", "RGBA", "RGBa")
_LARGEST = 32  # times that a photograph may be enlarged
_PROGRAMS = ("EPS",)  # formats that are programs themselves, and run by another
_16_BIT = {"PNG", "PPM", "JPEG2000"}  # formats whose wide integers Pillow scales to 16 bits
_TIFF_BITS, _TIFF_MEANING, _BLACK_IS_ZERO = 258, 262, 1


@dataclass(frozen=True)
class Framing:
    """How a photograph of any size becomes an image of the victim's: resize, then centre crop.

    Attributes:
        resize: length of the shorter side after resizing, or (height, width) whatever the shape was
            before; None does not resize.
        crop: (height, width) that is cut from the middle.
        filter: how pixels are resampled.
        half: what half of an odd margin is: ``"even"``, rounded to an even number as torchvision
            does, or ``"floor"``, rounded down as Hugging Face's processors do.
    """

    resize: int | tuple[int, int] | None
    crop: tuple[int, int]
    filter: Filter = "bilinear"
    half: Half = "even"

    def apply(self, image: Image.Image) -> Image.Image:
        """Resize and crop, as torchvision's transforms do on PIL images."""
        if self.resize is not None:
            size = self._resized(image.size)
            _check_enlargement(image.size, size)
            image = image.resize(size, Image.Resampling[self.filter.upper()])
        width, height = image.size
        h, w = self.crop
        if height < h or width < w:
            raise InputError(
                f"{height} x {width} pixels are less than the crop of {h} x {w}: give larger images"
            )
        top, left = self._half(height - h), self._half(width - w)
        return image.crop((left, top, left + w, top + h))

    def _resized(self, size: tuple[int, int]) -> tuple[int, int]:
        """(width, height) after resizing."""
        if isinstance(self.resize, tuple):
            return self.resize[1], self.resize[0]
        width, height = (int(side * (self.resize or 1) / min(size)) for side in size)
        return width, height

    def _half(self, margin: int) -> int:
        return margin // 2 if self.half == "floor" else round(margin / 2)


def imagenet_framing(size: tuple[int, int]) -> Framing:
    """The usual margin of ImageNet models: 256 pixels for a crop of 224."""
    return Framing(max(size) * 8 // 7, size)


def fit_for(wanted: Traits, size: int | None = None) -> tuple[Framing | None, Shape | None]:
    """Framing and shape of the images for a victim; None where nobody says.

    Args:
        wanted: what the victim says of itself.
        size: side of a square to frame images to, whatever the victim says.
    """
    if size is not None:
        return Framing(size, (size, size)), (wanted.shape[0] if wanted.shape else 3, size, size)
    framing: Framing | None = wanted.framing
    return framing, wanted.shape or (None if framing is None else (3, *framing.crop))


def read_image(
    path: str | Path, shape: Shape | None = None, framing: Framing | None = None
) -> Tensor:
    """Read an image file as ``(c, h, w)`` float32 in [0, 1].

    Args:
        path: any format that Pillow reads; see `open_picture`.
        shape: what the victim wants; colours are converted.
        framing: how to bring another size to the victim's; None refuses other sizes.
    """
    return frame(open_picture(path, shape[0] if shape else 3), path, shape, framing)


def open_picture(path: str | Path, channels: int = 3) -> Image.Image:
    """An image file as a picture of 8-bit levels, upright, not framed yet; see `decode_picture`.

    Args:
        path: any format that Pillow reads.
        channels: 1 is grey, 3 is RGB, 4 is RGB with the alpha channel.
    """
    require_file(Path(path))
    try:
        if os.stat(path).st_size == 0:
            raise DataError(f"{path} is empty: copy or fetch it again")
        with open(path, "rb") as file:
            return decode_picture(file, path, channels)
    except (FileNotFoundError, IsADirectoryError, PermissionError, NotADirectoryError) as error:
        raise DataError(f"cannot open {path}: {error.strerror}") from error


def decode_picture(
    file: IO[bytes], name: str | Path, channels: int = 3, most: int | None = None
) -> Image.Image:
    """An encoded image as a picture of 8-bit levels, upright, not framed yet.

    The orientation that EXIF gives is applied, 16-bit numbers become the nearest 8-bit level, and
    of an animation the first frame is taken. An image with transparent pixels is refused: what they
    look like depends on a background that the file does not name.

    Args:
        file: any format that Pillow reads.
        name: what it is called, for messages.
        channels: 1 is grey, 3 is RGB, 4 is RGB with the alpha channel.
        most: most pixels that it may have; None is what Pillow takes to be no bomb.
    """
    if channels not in _MODES:
        raise InputError(f"the victim takes {channels} channels, which no image file has")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=_formats()) as opened:
                if most is not None and opened.width * opened.height > most:
                    raise DataError(
                        f"{name} has {opened.height} x {opened.width} pixels, above the limit of "
                        f"{most}: make it smaller first"
                    )
                picture = _decode(opened, name, channels)
    except BrusleError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(
            f"{name} is no image that can be read: give a PNG, JPEG or similar file"
        ) from error
    except Exception as error:  # decoders of damaged files raise anything
        raise DataError(
            f"{name} is no image that can be read ({error}): give a PNG, JPEG or similar file"
        ) from error
    if picture.width * picture.height < 2:
        raise DataError(f"{name} is a single pixel: give an image of more")
    return picture


def frame(
    picture: Image.Image, path: str | Path, shape: Shape | None, framing: Framing | None
) -> Tensor:
    """A picture from `open_picture` in the victim's size; arguments as in `read_image`."""
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
            f"resize it first, or let brusle do so (attack --size N, folder:DIR?size=N)"
        )
    return image


def save_image(image: Tensor, path: str | Path, durable: bool = True) -> None:
    """Write a ``(c, h, w)`` image in [0, 1] as an 8-bit PNG; ``durable`` as in `written`."""
    levels = (image.detach().cpu().numpy() * 255).round().astype(np.uint8)
    pixels = levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0)
    with written(path, durable) as file:
        Image.fromarray(pixels).save(file, format="PNG")


def _formats() -> list[str]:
    """All formats but those that Pillow hands to another program, whatever the file is called."""
    Image.init()
    return [name for name in Image.ID if name not in _PROGRAMS]


def _decode(file: Any, path: str | Path, channels: int) -> Image.Image:
    picture = ImageOps.exif_transpose(file)
    if _is_transparent(picture) and (channels != 4 or _has_wide_key(picture)):
        raise DataError(
            f"{path} has transparent pixels, and what is behind them is not known: put it on a "
            f"background and save it without transparency"
        )
    if picture.mode == "F" or picture.mode.startswith("I"):
        if not _is_16_bit(file):
            raise DataError(
                f"{path} has pixels of mode {file.mode}, whose range is not known: save it with 8 "
                f"bits, or as a 16-bit PNG"
            )
        picture = Image.fromarray(np.rint(np.asarray(picture) / 257).astype(np.uint8))
    return picture.convert(_MODES[channels])


def _is_transparent(picture: Image.Image) -> bool:
    """Whether a pixel is not opaque; an alpha channel alone does not say so."""
    key = picture.info.get("transparency")
    if _has_wide_key(picture):
        # of 16-bit colours Pillow keeps 8 bits, so that nobody can tell
        return isinstance(key, tuple) or bool((np.asarray(picture) == key).any())
    if key is None and picture.mode not in _ALPHA:
        return False
    return int(np.asarray(picture.convert("RGBA").getchannel("A")).min()) < 255


def _has_wide_key(picture: Image.Image) -> bool:
    """Whether the file calls a 16-bit level or colour transparent, which Pillow cannot convert."""
    key = picture.info.get("transparency")
    if isinstance(key, tuple):
        return bool(max(key) > 255)
    return key is not None and picture.mode.startswith("I")


def _is_16_bit(file: Any) -> bool:
    """Whether the integers of a file go from 0, black, to 65535, white."""
    if file.format == "TIFF":
        tags = file.tag_v2
        plain = tags.get(_TIFF_BITS) == (16,) and tags.get(_TIFF_MEANING) == _BLACK_IS_ZERO
        return bool(plain and file.mode.startswith("I;16"))
    return bool(file.format in _16_BIT and file.mode.startswith("I"))


def _check_enlargement(before: tuple[int, int], after: tuple[int, int]) -> None:
    """Raise if there would be little image in what comes out, or more than memory holds."""
    width, height = before
    if after[0] > _LARGEST * width or after[1] > _LARGEST * height:
        raise InputError(
            f"{height} x {width} pixels would be enlarged more than {_LARGEST} times: give larger "
            f"images"
        )
    if after[0] * after[1] > (Image.MAX_IMAGE_PIXELS or np.inf):
        raise InputError(
            f"{height} x {width} pixels would become {after[1]} x {after[0]}: cut a part out first"
        )
