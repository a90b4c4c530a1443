"""Reading STL-10 (Coates, Lee and Ng 2011) from its official binary files.

``test_X.bin`` holds 3 x 96 x 96 bytes an image, each channel column by column; ``test_y.bin`` a
byte from 1 to 10; ``class_names.txt`` a name a line. The same goes for ``train``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brusle.data.sets import Source, as_images
from brusle.data.stored import data_folder, file_bytes, split_of
from brusle.errors import DataError
from brusle.files import require_file
from brusle.names import Name
from brusle.victim import Traits

_IMAGE = 3 * 96 * 96  # bytes


def source(name: Name, wanted: Traits) -> Source:
    """``stl10:test`` or ``stl10:train``; images stay on the disk until they are chosen."""
    split = split_of(name)
    folder = data_folder(name, "STL-10", "stl10_binary")
    if not (folder / f"{split}_X.bin").exists():
        raise DataError(
            f"no STL-10 files in {folder}: it needs {split}_X.bin, {split}_y.bin and "
            f"class_names.txt of the official binary archive"
        )
    stored = file_bytes(folder / f"{split}_X.bin", _IMAGE).reshape(-1, 3, 96, 96)
    labels = file_bytes(folder / f"{split}_y.bin", 1)[:, 0].astype(np.int64) - 1
    if len(labels) != len(stored):
        raise DataError(
            f"{folder} holds {len(stored)} {split} images and {len(labels)} labels: fetch it again"
        )

    def images(rows: Sequence[int]) -> Tensor:
        return as_images(np.ascontiguousarray(stored[list(rows)].transpose(0, 1, 3, 2)))

    names = tuple(f"{split}-{i:04d}" for i in range(len(labels)))
    classes = _lines(folder / "class_names.txt")
    return Source(name.text, torch.from_numpy(labels), classes, names, images)


def _lines(path: Path) -> tuple[str, ...]:
    require_file(path)
    try:
        return tuple(path.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}): fetch it again") from error
