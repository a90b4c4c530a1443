"""Options that the names of services share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from brusle.data.images import Framing
from brusle.errors import InputError
from brusle.names import Name
from brusle.scores import Output
from brusle.text import brief
from brusle.victims.options import take_classes, take_size, whole_framing
from brusle.victims.remote.service import About, Missing
from brusle.vocabulary import Vocabulary
from brusle.yaml_files import read_yaml


def take_missing(name: Name) -> Missing:
    """The option ``missing``."""
    return parse_missing(name.take("missing", "floor") or "", name.text)


def parse_missing(text: str, where: str) -> Missing:
    """What an absent label counts as: ``floor``, or a number."""
    if text == "floor":
        return "floor"
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise InputError(f"missing of {where} is {text!r}: write floor, 0 or another number")
    return value


def take_count(name: Name, option: str, default: int | None, most: int = 1_000_000) -> int | None:
    """An option that is a number from 1."""
    text = name.take(option)
    if text is None:
        return default
    if not text.isdecimal() or not 1 <= int(text[:12]) <= most:
        raise InputError(f"option {option} of {name.text!r} is {text!r}: write a number from 1")
    return int(text)


def take_output(name: Name, option: str, default: Output = "logits") -> Output:
    """An option that says what scores are."""
    kinds: tuple[Output, ...] = ("logits", "probabilities", "confidences")
    value = name.take_choice(option, kinds, default)
    return next(kind for kind in kinds if kind == value)


def take_framing(name: Name, default: int | None) -> Framing | None:
    """The option ``size``: what photographs are brought to; the service itself takes any."""
    size = take_size(name) or (None if default is None else (default, default))
    return None if size is None else whole_framing(size)


def take_vector(name: Name) -> About:
    """What a service that gives a score for each class is, by the options."""
    classes, size = take_classes(name), take_size(name)
    return About(
        output=take_output(name, "scores"),
        classes=classes if isinstance(classes, tuple) else None,
        width=classes if isinstance(classes, int) else None,
        shape=(3, *size) if size else None,
        framing=whole_framing(size) if size else None,
    )


def take_aliases(name: Name) -> dict[str, list[str]]:
    """The option ``aliases``, a file."""
    path = name.take("aliases")
    return {} if path is None else as_aliases(read_yaml(path, "file of aliases"), path)


def as_aliases(values: Mapping[Any, Any], where: str) -> dict[str, list[str]]:
    """A label to others that mean the same, if that is what ``values`` are."""
    aliases: dict[str, list[str]] = {}
    for label, others in values.items():
        several = [others] if isinstance(others, str) else others
        if not isinstance(several, list) or not all(isinstance(one, str) for one in several):
            raise InputError(
                f"{where}: the aliases of {brief(label)} are {brief(others)}: write a list of names"
            )
        aliases[str(label)] = several
    Vocabulary(aliases)  # raises where one is an alias of two
    return aliases
