"""The second opinion: every reported success is checked again by code that no attack owns.

A success counts only if the adversarial image differs from the original in at most the allowed
number of pixels, lies in [0, 1], and still reaches the goal after it has been written to and
read from an 8-bit PNG. Nothing of the attack is used but its final image.
"""

from __future__ import annotations

import io

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from brusle.oracle import Oracle
from brusle.problems import Problems


def png_round_trip(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Write ``(n, c, h, w)`` images in [0, 1] to 8-bit PNGs and read them back.

    Images share a PNG, one below the other, which is quicker and rounds no differently. PNG knows
    one, three and four channels; any other number is stored as that many grey images.
    """
    n, c, h, w = images.shape
    levels = np.rint(images * 255).astype(np.uint8)
    sheets = levels if c in (1, 3, 4) else levels.reshape(n * c, 1, h, w)
    per_sheet = max(1, 2**22 // (h * w))
    parts = [sheets[i : i + per_sheet] for i in range(0, len(sheets), per_sheet)]
    decoded = np.concatenate([_one_png(part) for part in parts])
    return decoded.reshape(images.shape).astype(np.float32) / np.float32(255)


def _one_png(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    n, c, h, w = images.shape
    sheet = images.transpose(0, 2, 3, 1).reshape(n * h, w, c)
    file = io.BytesIO()
    Image.fromarray(sheet[:, :, 0] if c == 1 else sheet).save(file, "PNG", compress_level=1)
    back = np.asarray(Image.open(io.BytesIO(file.getvalue())))
    return back.reshape(n, h, w, c).transpose(0, 3, 1, 2)


def verify(
    oracle: Oracle, problems: Problems, images: Tensor, rows: list[int], pixels: int
) -> dict[int, str]:
    """Check ``images`` of the problems ``rows``; return the reasons of those that do not hold.

    The label is asked of the victim once per image, counted in the ledger's ``verify`` column.
    """
    reasons: dict[int, str] = {}
    for row in rows:
        original, image = problems.images[row].numpy(), images[row].numpy()
        changed = int((original != image).any(axis=0).sum())
        if changed > pixels:
            reasons[row] = f"{changed} pixels differ from the original, {pixels} are allowed"
        elif not (image.min() >= 0 and image.max() <= 1):
            reasons[row] = f"values from {image.min():g} to {image.max():g} leave [0, 1]"
    good = [row for row in rows if row not in reasons]
    if not good:
        return reasons
    saved = torch.from_numpy(png_round_trip(images[good].numpy()))
    answers = oracle.ask(torch.tensor(good), saved, "verify")
    labels = answers.scores.float().cpu().numpy().argmax(axis=1)
    for at, row in enumerate(good):
        label = int(labels[at])
        if problems.targets is None:
            holds = label != int(problems.labels[row])
        else:
            holds = label == int(problems.targets[row])
        if at in answers.errors:
            reasons[row] = answers.errors[at]
        elif not holds:
            reasons[row] = f"after an 8-bit PNG round trip the victim says class {label}"
    return reasons
