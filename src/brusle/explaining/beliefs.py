"""What a search believed of each pixel as it went on: a picture, or its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from brusle.attacks import ATTACKS
from brusle.errors import InputError
from brusle.explaining.drawing import best_by, sheet_of_beliefs
from brusle.explaining.explanation import Explanation
from brusle.files import written
from brusle.names import require_ending
from brusle.report.plots import save_figure
from brusle.report.style import style_of
from brusle.report.wording import listed

FORMATS = (".png", ".npz")
_DPI = 130


def require_beliefs(attack: Any) -> None:
    """Raise if an attack keeps no belief about each pixel."""
    if attack.behaviour.believes:
        return
    some = [name for name, kind in ATTACKS.items() if kind(pixels=1).behaviour.believes]
    raise InputError(
        f"{attack.label} keeps no map of what it expects of each pixel: take {listed(some)}"
    )


def write_beliefs(explained: Explanation, path: str | Path, dark: bool = False) -> None:
    """Write the beliefs of a trace, as a picture or as arrays.

    The arrays: ``queries``, the moments; ``values``, the beliefs (m, h, w), of a large image one
    for each cell of it; ``best``, the best image by then (m, c, h, w); ``original``; ``meaning``.

    Args:
        explained: with a trace that has beliefs; raises if it has none.
        path: the file, in one of `FORMATS`.
        dark: for dark screens.
    """
    ending = require_ending(path, FORMATS)
    trace = explained.trace
    if trace is None or not trace.beliefs:
        raise InputError("nothing was believed of a pixel: the image was not attacked")
    if ending == ".png":
        save_figure(sheet_of_beliefs(explained).figure(style_of(dark)), path, _DPI)
        return
    original = torch.from_numpy(explained.original)
    best = [trace.image(best_by(trace, one.query), original).numpy() for one in trace.beliefs]
    arrays: dict[str, Any] = {
        "queries": np.array([belief.query for belief in trace.beliefs]),
        "values": np.stack([belief.values for belief in trace.beliefs]),
        "best": np.stack(best),
        "original": explained.original,
        "meaning": np.array(trace.meaning),
    }
    with written(path) as place, place.open("wb") as file:  # given a name, NumPy would add to it
        np.savez_compressed(file, **arrays)
