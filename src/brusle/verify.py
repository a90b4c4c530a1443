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


def png_round_trip(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Write a ``(c, h, w)`` image in [0, 1] to an 8-bit PNG and read it back.

    PNG knows one, three and four channels; any other number is stored as that many grey
    images, which rounds each channel in the same way.
    """
    levels = np.rint(image * 255).astype(np.uint8)
    parts = [levels] if len(levels) in (1, 3, 4) else [channel[None] for channel in levels]
    decoded = []
    for part in parts:
        pixels = part[0] if len(part) == 1 else np.moveaxis(part, 0, -1)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, format="PNG")
        back = np.asarray(Image.open(io.BytesIO(file.getvalue())))
        decoded.append(back[None] if back.ndim == 2 else np.moveaxis(back, -1, 0))
    return np.concatenate(decoded).astype(np.float32) / np.float32(255)


def verify(
    oracle: Oracle, problems: Problems, images: Tensor, rows: list[int], pixels: int
) -> dict[int, str]:
    """Check ``images`` of the problems ``rows``; return the reasons of those that do not hold.

    The label is asked of the victim once per image, counted in the ledger's ``verify`` column.
    """
    reasons: dict[int, str] = {}
    decoded: dict[int, NDArray[np.float32]] = {}
    for row in rows:
        original, image = problems.images[row].numpy(), images[row].numpy()
        changed = int((original != image).any(axis=0).sum())
        if changed > pixels:
            reasons[row] = f"{changed} pixels differ from the original, {pixels} are allowed"
        elif not (image.min() >= 0 and image.max() <= 1):
            reasons[row] = f"values from {image.min():g} to {image.max():g} leave [0, 1]"
        else:
            decoded[row] = png_round_trip(image)
    if not decoded:
        return reasons
    asked = torch.tensor(list(decoded))
    answers = oracle.ask(asked, torch.from_numpy(np.stack(list(decoded.values()))), "verify")
    scores = answers.scores.float().cpu().numpy()
    for at, row in enumerate(decoded):
        if at in answers.errors:
            reasons[row] = answers.errors[at]
            continue
        label = int(np.argmax(scores[at]))
        if problems.targets is None:
            holds = label != int(problems.labels[row])
        else:
            holds = label == int(problems.targets[row])
        if not holds:
            reasons[row] = f"after an 8-bit PNG round trip the victim says class {label}"
    return reasons
