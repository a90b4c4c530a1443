"""What the loaders share: common options, and the wrapping."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

import torch
from torch import nn

from brusle.data.images import Framing
from brusle.errors import InputError
from brusle.files import refuse_special
from brusle.names import Name, whole_number
from brusle.scores import Output
from brusle.victims.parts import Part
from brusle.victims.wrappers import TorchVictim, normalised


@dataclass(frozen=True)
class Normalisation:
    """The (x - mean) / std per channel that a model wants before it sees an image in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def whole_framing(size: tuple[int, int]) -> Framing:
    """As much of a photograph as fits, for models that are not known to want a margin."""
    return Framing(max(size), size)


def take_size(name: Name) -> tuple[int, int] | None:
    """The option ``size``: one number for squares, or height and width."""
    numbers = name.take_numbers("size")
    if numbers is None:
        return None
    if len(numbers) > 2 or not all(side >= 1 and side == int(side) for side in numbers):
        raise InputError(f"size in {name.text!r} must be a number of pixels, or height,width")
    return int(numbers[0]), int(numbers[-1])


def take_normalisation(name: Name, default: Normalisation | None) -> Normalisation | None:
    """The options ``mean`` and ``std``; ``mean=none`` switches normalisation off."""
    if name.options.get("mean") == "none":
        name.take("mean")
        if name.take("std") is not None:
            raise InputError(f"{name.text!r} has a std but no mean: leave std out")
        return None
    mean, std = name.take_numbers("mean"), name.take_numbers("std")
    if mean is None and std is None:
        return default
    zeros, ones = (0.0,) * len(std or ()), (1.0,) * len(mean or ())
    return Normalisation(
        mean or (default.mean if default else zeros), std or (default.std if default else ones)
    )


def take_classes(name: Name) -> int | tuple[str, ...] | None:
    """The option ``classes``: how many, or a file of names (one a line, or a JSON list)."""
    text = name.take("classes")
    if text is None:
        return None
    if text.isdigit() and int(text) > 1:
        return int(text)
    refuse_special(text)
    try:
        content = Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"classes={text} in {name.text!r} is neither a number above 1 nor a file of names"
        ) from error
    names = _class_names(content)
    if len(names) < 2:
        raise InputError(
            f"{text} in {name.text!r} has no two class names: give one a line, or a JSON list"
        )
    return names


def _class_names(content: str) -> tuple[str, ...]:
    """The names in a file; none if it is meant to be JSON and is not."""
    if content.lstrip().startswith("["):
        try:
            return tuple(str(item) for item in json.loads(content))
        except ValueError:
            return ()
    return tuple(line.strip() for line in content.splitlines() if line.strip())


def take_class_names(name: Name) -> tuple[str, ...] | None:
    """The option ``classes`` where only names make sense, because the file knows the number."""
    classes = take_classes(name)
    if isinstance(classes, int):
        raise InputError(
            f"classes in {name.text!r} is a number, which the model knows itself: give a file of "
            f"names (one a line, or a JSON list), or leave it out"
        )
    return classes


def take_output(name: Name) -> Output:
    """The option ``output``."""
    return cast(Output, name.take_choice("output", get_args(Output), "logits"))


def take_scores(name: Name) -> Part | None:
    """The option ``scores``: which part of what a model returns, by place or name."""
    text = name.take("scores")
    if text is None:
        return None
    place = whole_number(text)
    return text if place is None else place


def torch_victim(
    name: Name,
    module: nn.Module,
    device: torch.device,
    normalisation: Normalisation | None,
    *,
    shape: tuple[int, int, int] | None,
    framing: Framing | None,
    classes: Sequence[str] | None,
    output: Output = "logits",
    channels_last: bool = True,
    scores: Part | None = None,
) -> TorchVictim:
    """``module``, which nobody else has, as the victim that ``name`` asks for."""
    if normalisation is not None:
        module = normalised(module, normalisation.mean, normalisation.std)
    module.to(device=device, dtype=torch.float32).eval()
    return TorchVictim(
        module,
        output=output,
        device=device,
        channels_last=channels_last,
        name=name.text,
        classes=classes,
        shape=shape,
        framing=framing,
        scores=scores,
    )
