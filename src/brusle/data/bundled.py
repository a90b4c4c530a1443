"""The sample that ships with the package."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import torch
from PIL import Image

from brusle.data import cifar10
from brusle.data.sets import Source, as_images
from brusle.errors import InputError
from brusle.names import Name
from brusle.victim import Traits


def sample(name: Name, wanted: Traits) -> Source:
    """200 test images of CIFAR-10 from one PNG: a row for each class, a column for each image."""
    name.done()
    if name.rest:
        raise InputError(f"unknown data {name.text!r}: the sample has no parts, write 'sample'")
    folder = files("brusle.data").joinpath("sample")
    index: list[list[int]] = json.loads(folder.joinpath("cifar10.json").read_text())["index"]
    with folder.joinpath("cifar10.png").open("rb") as file:
        sheet = np.asarray(Image.open(file))
    rows, columns = len(index), len(index[0])
    tiles = sheet.reshape(rows, 32, columns, 32, 3).transpose(0, 2, 4, 1, 3)
    levels = tiles.reshape(-1, 3, 32, 32)
    labels = torch.arange(rows).repeat_interleave(columns)
    names = tuple(f"test-{number:04d}" for row in index for number in row)
    return Source(
        name.text, labels, cifar10.CLASSES, names, lambda chosen: as_images(levels[list(chosen)])
    )
