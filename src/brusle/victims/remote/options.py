"""Options that the names of services share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import numpy as np

from brusle.errors import InputError
from brusle.names import Name
from brusle.scores import MISSING, Missing, Output
from brusle.text import brief
from brusle.victims.options import take_classes, take_size, whole_framing
from brusle.victims.remote.authorisation import check_url
from brusle.victims.remote.pixels import Layout, Numbers
from brusle.victims.remote.service import About
from brusle.vocabulary import Vocabulary
from brusle.yaml_files import read_yaml


def take_missing(name: Name) -> Missing:
    """The option ``missing``."""
    text = name.take("missing")
    return MISSING if text is None else parse_missing(text, name.text)


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


def take_labels(name: Name, output: Output) -> About:
    """What a service that lists labels is, by the options; it takes images of any size."""
    return About(
        output=output,
        gives="partial",
        labelled=True,
        framing=whole_framing(take_size(name) or (224, 224)),
        aliases=take_aliases(name),
        missing=take_missing(name),
    )


def take_layout(name: Name) -> Layout | None:
    """The option ``layout``; None leaves it to what the server says."""
    value = name.take_choice("layout", ("auto", "nchw", "nhwc"), "auto")
    return None if value == "auto" else "nhwc" if value == "nhwc" else "nchw"


def take_numbers(name: Name) -> Numbers | None:
    """The option ``type``; None leaves it to what the server says."""
    value = name.take_choice("type", ("auto", "float32", "uint8"), "auto")
    return None if value == "auto" else "uint8" if value == "uint8" else "float32"


def take_vector(name: Name) -> About:
    """What a service that gives a score for each class is, by the options."""
    classes, size = take_classes(name), take_size(name)
    about = About(
        output=take_output(name, "scores"),
        classes=classes if isinstance(classes, tuple) else None,
        width=classes if isinstance(classes, int) else None,
    )
    return about.of_shape((3, *size) if size else None)


def split_model(name: Name) -> tuple[str, str]:
    """Base and model of ``http://host:port/prefix/MODEL``; what servers put between is left out."""
    url = check_url(name.rest, name.text)
    base, _, model = url.rpartition("/")
    for between in ("/v1/models", "/v2/models"):
        base = base.removesuffix(between)
    if base.endswith(("/", ":")) or not model:
        raise InputError(f"{name.text!r} names no model: write {name.kind}:http://host:port/MODEL")
    return base, model


def take_version(name: Name) -> str:
    """The option ``version``, as a part of a path; empty if it is not given."""
    version = name.take("version")
    return f"/versions/{quote(version, safe='')}" if version else ""


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
