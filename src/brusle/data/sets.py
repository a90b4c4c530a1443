"""Data sets by name, and single images from and to files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from brusle.data import cifar10
from brusle.errors import DataError, InputError


@dataclass(frozen=True)
class Dataset:
    """Labelled images.

    Attributes:
        name: as given to `load`.
        images: ``(n, c, h, w)`` float32 in [0, 1].
        labels: ``(n,)`` int64.
        classes: names of the classes.
        names: what each image is called in reports.
    """

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def balanced(self, limit: int) -> Dataset:
        """The first ``limit`` images in an order that takes one of each class in turn."""
        seen: dict[int, int] = {}
        turn = []
        for at, label in enumerate(self.labels.tolist()):
            turn.append((seen.setdefault(label, 0), label, at))
            seen[label] += 1
        rows = [at for _, _, at in sorted(turn)[:limit]]
        names = tuple(self.names[row] for row in rows)
        return Dataset(self.name, self.images[rows], self.labels[rows], self.classes, names)


def known_data() -> dict[str, str]:
    """Names that `load` takes, with a line about each."""
    return {"sample": "200 CIFAR-10 test images, 20 of each class (bundled)"}


def load(name: str = "sample") -> Dataset:
    """The data set called ``name``."""
    if name != "sample":
        raise InputError(f"unknown data {name!r}: known are {', '.join(known_data())}")
    folder = files("brusle.data").joinpath("sample")
    index: list[list[int]] = json.loads(folder.joinpath("cifar10.json").read_text())["index"]
    with folder.joinpath("cifar10.png").open("rb") as file:
        sheet = np.asarray(Image.open(file))
    # one row of the sheet per class, one column per image
    rows, columns = len(index), len(index[0])
    tiles = sheet.reshape(rows, 32, columns, 32, 3).transpose(0, 2, 4, 1, 3)
    images = torch.from_numpy(tiles.reshape(-1, 3, 32, 32).astype(np.float32) / np.float32(255))
    labels = torch.arange(rows).repeat_interleave(columns)
    names = tuple(f"test-{number:04d}" for row in index for number in row)
    return Dataset("sample", images, labels, cifar10.CLASSES, names)


def read_image(path: str | Path, shape: tuple[int, int, int] | None = None) -> Tensor:
    """Read an image file as ``(c, h, w)`` float32 in [0, 1].

    Args:
        path: any format that Pillow reads.
        shape: what the victim wants; the size must fit, colours are converted.
    """
    try:
        with Image.open(path) as file:
            mode = {1: "L", 3: "RGB", 4: "RGBA"}[shape[0] if shape else 3]
            levels = np.asarray(file.convert(mode))
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise DataError(f"cannot open {path}: {error.strerror}") from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise DataError(
            f"{path} is no image that can be read ({error}): give a PNG, JPEG or similar file"
        ) from error
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
