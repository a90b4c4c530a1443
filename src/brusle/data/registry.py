"""Data sets by name: ``kind:rest?option=value``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from brusle.data import cifar10, stl10
from brusle.data.arrays import npz
from brusle.data.bundled import sample
from brusle.data.folders import folder, imagenet
from brusle.data.sets import Dataset, Source
from brusle.errors import BrusleError, DataError, InputError, first_line
from brusle.names import Name, hint, plugin_risk, plugins
from brusle.victim import Traits, traits


class _Kind(NamedTuple):
    open: Callable[[Name, Traits], Source]
    form: str
    summary: str
    risk: str  # what opening it does beyond reading data, for a message; empty if nothing


_KINDS = {
    "sample": _Kind(
        sample, "sample", "200 CIFAR-10 test images, 20 of each class (bundled)", risk=""
    ),
    "cifar10": _Kind(
        cifar10.source,
        "cifar10:test|train",
        "CIFAR-10 (`brusle data fetch cifar10`). Options: dir=DIR",
        risk="",
    ),
    "stl10": _Kind(
        stl10.source,
        "stl10:test|train",
        "STL-10 (`brusle data fetch stl10`). Options: dir=DIR",
        risk="",
    ),
    "imagenet": _Kind(
        imagenet,
        "imagenet:DIR",
        "ImageNet photographs in class folders or with a labels.csv, framed for the victim",
        risk="",
    ),
    "folder": _Kind(
        folder,
        "folder:DIR",
        "your images in a folder for each class or with a labels.csv. Options: size=N",
        risk="",
    ),
    "npz": _Kind(
        npz,
        "npz:FILE",
        "arrays images (or x) and labels (or y). Options: layout=nchw|nhwc",
        risk="",
    ),
}


def known_data() -> dict[str, str]:
    """Names that `load` takes, with a line about each."""
    lines = {kind.form: kind.summary for kind in _KINDS.values()}
    others = {kind: point for kind, point in plugins("data").items() if kind not in _KINDS}
    return lines | {kind: f"from {point.value}" for kind, point in others.items()}


def risk(name: str) -> str:
    """What opening the data ``name`` does beyond reading data; empty if nothing."""
    kind = Name.parse(name).kind
    return _KINDS[kind].risk if kind in _KINDS else plugin_risk(plugins("data").get(kind))


def load(name: str = "sample", limit: int | None = None, like: Any = None) -> Dataset:
    """The data set called ``name``.

    Args:
        name: such as ``"sample"`` or ``"folder:photos?size=64"``; see `known_data`.
        limit: most images, one of each class in turn; only these are decoded. None reads all,
            in the order of the files.
        like: the victim that the images are for: its size, framing and class names are used.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}: it must be at least 1")
    found = source(name, like)
    return found.take(range(len(found)) if limit is None else found.order()[:limit])


def source(name: str, like: Any = None) -> Source:
    """The data set called ``name`` with its images still unread; arguments as in `load`."""
    parts, wanted = Name.parse(name), Traits() if like is None else traits(like)
    if parts.kind in _KINDS:
        found = _KINDS[parts.kind].open(parts, wanted)
    else:
        found = _from_plugin(parts, like)
    most = int(found.labels.max())
    if wanted.classes and most >= len(wanted.classes):
        raise InputError(
            f"{name} has label {most}, but the victim has {len(wanted.classes)} classes: they "
            f"are not made for each other"
        )
    return found


def _from_plugin(name: Name, like: Any) -> Source:
    others = plugins("data")
    if name.kind not in others:
        raise InputError(f"unknown data {name.text!r}{hint(name.kind, [*_KINDS, *others])}")
    point = others[name.kind]
    try:
        build = point.load()
    except Exception as error:
        raise DataError(
            f"the plugin {point.value} for data {name.kind!r} cannot be loaded "
            f"({first_line(error)}): install its package again"
        ) from error
    try:
        # options are the plugin's own business, so it gets all that follows the colon
        data = build(name.text.partition(":")[2], like)
    except BrusleError:
        raise
    except Exception as error:
        raise DataError(f"{name.text} failed in {point.value}: {first_line(error)}") from error
    if not isinstance(data, Dataset):
        raise DataError(
            f"the plugin {point.value} returned a {type(data).__name__}: it must return a "
            f"brusle.data.Dataset"
        )
    return Source(
        name.text, data.labels, data.classes, data.names, lambda rows: data.images[list(rows)]
    )
