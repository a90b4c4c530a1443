"""Data sets by name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brusle.data import cifar10
from brusle.errors import InputError


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
