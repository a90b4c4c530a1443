"""Victims from scikit-learn, in files of skops."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from brusle.data.images import Shape
from brusle.errors import InputError, VictimError, first_line
from brusle.names import Name
from brusle.packages import need, need_version
from brusle.scores import Output
from brusle.text import shortened
from brusle.victim import check_shape
from brusle.victims.options import take_class_names
from brusle.victims.weights import what_is
from brusle.victims.wrappers import _check_kind

_OLDEST = (0, 13)  # in earlier versions, a file could run code all the same
_MOST = 4  # types that a message lists
_OWN = "sklearn."
_BY_HAND = (
    "load it in a function of yours, with skops.io.load(..., trusted=[...]), and bring that as "
    "python:"
)


@dataclass
class SklearnVictim:
    """A fitted classifier of scikit-learn that takes the pixels of an image as one row of numbers.

    Attributes:
        model: it has ``predict_proba``.
        name: for messages and reports.
        shape: (channels, height, width) of its images.
        classes: names of the classes, if known.
        scale: what values in [0, 1] are multiplied by.
        layout: the order of the numbers, channel by channel or pixel by pixel.
        fingerprint: a hash of its file.
        output: what it returns.
        device: where it runs.
    """

    model: Any
    name: str
    shape: Shape
    classes: Sequence[str] | None = None
    scale: float = 1.0
    layout: Literal["nchw", "nhwc"] = "nchw"
    fingerprint: str = ""
    output: Output = field(default="probabilities", init=False)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"), init=False)

    def __call__(self, images: Tensor) -> Tensor:
        """Scores of ``(n, c, h, w)`` images."""
        check_shape(images.shape[1:], self)
        values = images.cpu().double() * self.scale
        if self.layout == "nhwc":
            values = values.permute(0, 2, 3, 1)
        scores = self.model.predict_proba(values.flatten(1).numpy())
        if not isinstance(scores, np.ndarray):
            raise VictimError(f"{self.name} gives several outputs at once: fit it to one label")
        return _check_kind(torch.from_numpy(scores.astype(np.float64)), self.output, self.name)


def from_skops(name: Name, device: torch.device) -> SklearnVictim:
    """The victim called ``sklearn:FILE.skops?...``."""
    shape, scale = name.take_numbers("shape"), name.take_numbers("scale")
    layout = name.take_choice("layout", ("nchw", "nhwc"), "nchw")
    asked, trusted = take_class_names(name), _take_trusted(name)
    name.done()
    model = _read(name, trusted)
    if not hasattr(model, "predict_proba"):
        raise VictimError(
            f"{name.rest} is a {type(model).__name__} without predict_proba: fit it with "
            f"probabilities, put it into a CalibratedClassifierCV, or wrap its decision_function "
            f"in Python"
        )
    known = getattr(model, "classes_", None)
    if not isinstance(known, np.ndarray) or known.ndim != 1:
        raise VictimError(f"{name.rest} is no classifier of one label that has been fitted")
    return SklearnVictim(
        model,
        name.text,
        _shape(name, shape, getattr(model, "n_features_in_", None)),
        asked or _names(known),
        scale=scale[0] if scale else 1.0,
        layout="nhwc" if layout == "nhwc" else "nchw",
        fingerprint=hashlib.sha256(Path(name.rest).read_bytes()).hexdigest()[:16],
    )


def _take_trusted(name: Name) -> list[str]:
    """The option ``trust``: types of scikit-learn that skops does not build unasked."""
    types = [word for word in (name.take("trust") or "").split(",") if word]
    for one in types:
        if not one.startswith(_OWN):
            raise InputError(
                f"trust in {name.text!r} takes types of scikit-learn, and not {one}: {_BY_HAND}"
            )
    return types


def _read(name: Name, trusted: list[str]) -> Any:
    """The object in a file, if it consists of nothing but what skops and the user trust."""
    skops = need("skops.io", name.text)
    need_version(need("skops", name.text), _OLDEST, "builds nothing that it does not trust")
    need("sklearn", name.text)
    held = what_is(name.rest)
    if held != "other":
        kind = "pickle, which could run code" if held == "pickle" else held
        raise VictimError(f"{name.rest} is a {kind}: save the model with skops.io.dump")
    try:
        unknown = skops.get_untrusted_types(file=name.rest)
        strange = [one for one in unknown if one not in trusted]
        if not strange:
            return skops.load(name.rest, trusted=unknown)
    except Exception as error:  # a damaged or strange file may raise anything
        raise VictimError(
            f"{name.rest} cannot be loaded with skops ({shortened(first_line(error), 120)}): save "
            f"the model with skops.io.dump"
        ) from error
    remedy = _BY_HAND
    if all(one.startswith(_OWN) for one in strange):
        remedy = f"if you trust who made it, add trust={','.join(strange)}"
    more = f" and {len(strange) - _MOST} more" if len(strange) > _MOST else ""
    raise VictimError(
        f"{name.rest} holds {', '.join(strange[:_MOST])}{more}, which skops does not build "
        f"unasked: {remedy}"
    )


def _shape(name: Name, asked: Sequence[float] | None, features: int | None) -> Shape:
    """The option ``shape``, which must have as many numbers as the model takes."""
    takes = f" (it takes {features} numbers)" if features else ""
    if asked is None:
        raise InputError(
            f"{name.text!r} does not say what images are: add ?shape=CHANNELS,HEIGHT,WIDTH{takes}"
        )
    if len(asked) != 3 or not all(side >= 1 and side == int(side) for side in asked):
        raise InputError(f"shape in {name.text!r} must be channels,height,width, as in 1,8,8")
    channels, height, width = (int(side) for side in asked)
    if features not in (None, math.prod((channels, height, width))):
        raise InputError(
            f"shape={channels},{height},{width} is {math.prod((channels, height, width))} numbers, "
            f"but {name.rest} takes {features}"
        )
    return channels, height, width


def _names(known: np.ndarray[Any, Any]) -> tuple[str, ...] | None:
    """What the classes are called; None if they are numbered from 0, as the labels of images."""
    if known.dtype.kind in "iu" and known.tolist() == list(range(len(known))):
        return None
    return tuple(str(one) for one in known.tolist())
