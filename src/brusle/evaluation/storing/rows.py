"""Finished attacks as rows of the store, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brusle.errors import DataError
from brusle.evaluation.record import Row
from brusle.problems import Problems
from brusle.results import AttackResult
from brusle.text import storable


def rows_of(result: AttackResult, which: Sequence[int], names: Sequence[str]) -> list[Row]:
    """Rows of the problems ``which`` of a result, whose images are called ``names``."""
    problems, made = result.problems, []
    for i in which:
        edits = pack_edits(problems.images[i], result.images[i])
        made.append(
            Row(
                problem=int(problems.ids[i]),
                image=names[i],
                label=int(problems.labels[i]),
                target=None if problems.targets is None else int(problems.targets[i]),
                status=result.status[i],
                stable=bool(result.stable[i]),
                queries=int(result.queries[i]),
                **result.ledger.row(i),
                pixels=len(edits) // (4 + problems.shape[0]),
                clean_label=int(result.clean_labels[i]),
                final_label=int(result.labels[i]),
                loss=float(result.losses[i]),
                scores=result.scores[i].double().numpy().tobytes(),
                edits=edits,
                found_by=result.found_by[i],
                error=storable(result.errors.get(i, "")),
                seconds=float(result.times[i]),
            )
        )
    return made


def pack_edits(original: Tensor, image: Tensor) -> bytes:
    """Changed pixels of one ``(c, h, w)`` image: positions, then their 8-bit levels."""
    changed = (original != image).any(0).flatten().nonzero()[:, 0]
    levels = (image.flatten(1)[:, changed] * 255).round().to(torch.uint8).T.contiguous()
    return changed.numpy().astype("<u4").tobytes() + levels.numpy().tobytes()


def unpack_edits(packed: bytes, original: Tensor) -> Tensor:
    """The image that `pack_edits` has packed."""
    positions, levels = _parts(packed, original.shape[0])
    image = original.flatten(1).clone()
    image[:, torch.from_numpy(positions)] = torch.from_numpy(levels.copy()).T.float() / 255
    return image.view_as(original)


def edits_of(row: Row, shape: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Positions of the changed pixels, in rising order, and their ``(n, channels)`` levels.

    Args:
        row: the row; raises if its edits cannot be those of an image.
        shape: channels, height and width of the image.
    """
    channels, height, width = shape
    positions, levels = _parts(row.edits, channels)
    whole = len(positions) * (4 + channels) == len(row.edits)
    if not whole or (np.diff(positions) <= 0).any() or (positions >= height * width).any():
        raise DataError(f"the stored edits of image {row.image} are damaged")
    if len(positions) != row.pixels:
        raise DataError(
            f"image {row.image} has {len(positions)} stored edits, and its row says {row.pixels} "
            f"pixels"
        )
    return positions, levels


def rebuild(row: Row, original: Tensor) -> Tensor:
    """The final image of a row; raises if that cannot be the image that was stored."""
    targets = None if row.target is None else [row.target]
    if int(Problems.make(original[None], [row.label], targets).ids[0]) != row.problem:
        raise DataError(f"image {row.image} with its label and target is not what was attacked")
    edits_of(row, original.shape)
    return unpack_edits(row.edits, original)


def _parts(packed: bytes, channels: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Positions and levels, as far as they are whole."""
    count = len(packed) // (4 + channels)
    positions = np.frombuffer(packed[: 4 * count], dtype="<u4").astype(np.int64)
    levels = np.frombuffer(packed[4 * count : (4 + channels) * count], dtype=np.uint8)
    return positions, levels.reshape(count, channels)
