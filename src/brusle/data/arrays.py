"""Images and labels from NumPy's ``.npz`` files."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brusle.data.sets import MOST_CLASSES, Source, as_images, different_names
from brusle.errors import BrusleError, DataError, InputError, first_line
from brusle.files import require_file
from brusle.names import Name
from brusle.text import shortened
from brusle.victim import Traits

_CHANNELS = (1, 3, 4)
_WANTED = ("images", "x", "labels", "y", "classes", "names")


def npz(name: Name, wanted: Traits) -> Source:
    """``npz:FILE`` with the arrays images (or x) and labels (or y), and maybe classes and names."""
    layout = name.take_choice("layout", ("auto", "nchw", "nhwc"), "auto")
    name.done()
    if not name.rest:
        raise InputError(f"data {name.text!r} names no file: write npz:FILE")
    path = Path(name.rest).expanduser()
    arrays = _arrays(path)
    images = _images(path, arrays, layout)
    labels = _array(path, arrays, "labels", "y")
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise DataError(
            f"the labels of {path} are {labels.dtype} of shape {labels.shape}: give one whole "
            f"number for each of its {len(images)} images"
        )
    if len(labels) and int(labels.max()) >= MOST_CLASSES:
        raise DataError(
            f"the labels of {path} go up to {labels.max()}: give numbers of classes, below "
            f"{MOST_CLASSES}"
        )
    classes = _texts(path, arrays, "classes")
    names = _texts(path, arrays, "names")
    if names and len(names) != len(images):
        raise DataError(f"{path} has {len(images)} images and {len(names)} names: give one each")

    def read(rows: Sequence[int]) -> Tensor:
        chosen = images[list(rows)]
        return as_images(chosen) if chosen.dtype == np.uint8 else torch.from_numpy(chosen).float()

    return Source(
        name.text,
        torch.from_numpy(labels.astype(np.int64)),
        classes or tuple(wanted.classes or ()),
        different_names(names) if names else tuple(f"{i:05d}" for i in range(len(images))),
        read,
    )


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    require_file(path)
    try:
        if not zipfile.is_zipfile(path):
            raise DataError(f"{path} is no .npz file: save it with numpy.savez")
        _check_sizes(path)
        # a pickled object could run code
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in _WANTED if key in file}
    except BrusleError:
        raise
    except PermissionError as error:
        raise DataError(f"cannot open {path}: {error.strerror}") from error
    except Exception as error:  # damaged archives raise anything
        if "Object arrays" in str(error):
            raise DataError(
                f"{path} holds an array of Python objects, which are not read because they could "
                f"run code: save numbers and strings only"
            ) from error
        reason = shortened(first_line(error), 200)
        raise DataError(f"{path} is damaged ({reason}): save it again") from error


def _check_sizes(path: Path) -> None:
    """Raise if an array says that it is larger than its bytes in the archive, or than memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.removesuffix(".npy") not in _WANTED:
                continue
            with archive.open(member) as file:
                size = _declared(file)
            if size > member.file_size:
                raise DataError(
                    f"{path} is damaged ({member.filename} says that it has {size} bytes, and it "
                    f"has {member.file_size}): save it again"
                )
            if size > memory:
                raise DataError(
                    f"{member.filename} of {path} has {size / 1e9:.0f} GB, more than the memory "
                    f"holds: save fewer images"
                )


def _declared(file: IO[bytes]) -> int:
    """How many bytes an array has by its header."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, kind = np.lib.format.read_array_header_1_0(file)
    else:
        shape, _, kind = np.lib.format.read_array_header_2_0(file)
    return math.prod(shape) * kind.itemsize


def _array(path: Path, arrays: dict[str, NDArray[Any]], name: str, short: str) -> NDArray[Any]:
    for key in (name, short):
        if key in arrays:
            return arrays[key]
    raise DataError(f"{path} has no array {name!r} (or {short!r}): add it")


def _texts(path: Path, arrays: dict[str, NDArray[Any]], key: str) -> tuple[str, ...]:
    if key not in arrays:
        return ()
    texts = arrays[key]
    if texts.ndim != 1 or texts.dtype.kind != "U":
        raise DataError(f"{key} of {path} is {texts.dtype} of shape {texts.shape}: give strings")
    try:
        return tuple(map(str, texts))
    except (ValueError, SystemError) as error:  # numbers that are no characters
        raise DataError(f"{key} of {path} are no text ({error}): give strings") from error


def _images(path: Path, arrays: dict[str, NDArray[Any]], layout: str) -> NDArray[Any]:
    """The images as NCHW, checked."""
    images = _array(path, arrays, "images", "x")
    if images.ndim != 4 or 0 in images.shape[1:]:
        raise DataError(
            f"the images of {path} have shape {images.shape}: give (n, channels, height, width) "
            f"or (n, height, width, channels)"
        )
    if images.dtype != np.uint8:
        _check_floats(path, images)
    if layout == "auto":
        layout = _layout(path, images.shape)
    return images if layout == "nchw" else images.transpose(0, 3, 1, 2)


def _check_floats(path: Path, images: NDArray[Any]) -> None:
    if images.dtype.kind != "f":
        scale = ", as in x / 65535" if images.dtype == np.uint16 else ""
        raise DataError(
            f"the images of {path} are {images.dtype}: give uint8 in 0 ... 255 or floats in "
            f"0 ... 1{scale}"
        )
    low, high = (images.min(), images.max()) if len(images) else (0, 0)
    if low >= 0 and high <= 1:
        return
    if not np.isfinite(images).all():
        what = "NaN" if np.isnan(images).any() else "infinite values"
        raise DataError(f"the images of {path} have {what}: give finite numbers in 0 ... 1")
    remedy = "scale them, as in x / 255, or save uint8"
    if low < 0:
        remedy = "undo their normalisation, which belongs into the victim (?mean=&std=)"
    raise DataError(
        f"the images of {path} are floats from {low:g} to {high:g}, outside of 0 ... 1: {remedy}"
    )


def _layout(path: Path, shape: tuple[int, ...]) -> str:
    first, last = shape[1] in _CHANNELS, shape[3] in _CHANNELS
    if first == last:
        which = "either the first or the last" if first else "neither the first nor the last"
        raise InputError(
            f"the images of {path} have shape {shape}, where {which} could be channels: add "
            f"?layout=nchw or ?layout=nhwc"
        )
    return "nchw" if first else "nhwc"
