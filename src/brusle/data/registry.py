"""Data sets by name: ``kind:rest?option=value``."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import torch

from brusle.data import cifar10, stl10
from brusle.data.arrays import npz
from brusle.data.bundled import sample
from brusle.data.folders import folder, imagenet
from brusle.data.hugging_face import hugging_face
from brusle.data.sets import Dataset, Source
from brusle.errors import DataError, InputError
from brusle.foreign import foreign_code, load_plugin
from brusle.names import Name
from brusle.problems import Problems
from brusle.registry import Kind, Registry
from brusle.victim import Traits, traits

Data = str | Source | Dataset | tuple[Any, Any]  # a name, or images and labels in some form

Opener = Callable[[Name, Any], Source]


def load(name: str = "sample", limit: int | None = None, like: Any = None) -> Dataset:
    """The data set called ``name``.

    Args:
        name: such as ``"sample"`` or ``"folder:photos?size=64"``; see `known_data`.
        limit: most images, one of each class in turn; only these are decoded. None reads all,
            in the order of the files.
        like: the victim that the images are for: its size, framing and class names are used.
    """
    found = source(name, like)
    return found.take(found.chosen(limit))


def source(name: str, like: Any = None) -> Source:
    """The data set called ``name`` with its images still unread; arguments as in `load`."""
    parsed, wanted = Name.parse(name), _wanted(like)
    found = REGISTRY.find(parsed).open(parsed, like)
    most = int(found.labels.max())
    if wanted.classes and most >= len(wanted.classes):
        raise InputError(
            f"{name} has label {most}, but the victim has {len(wanted.classes)} classes: they "
            f"are not made for each other"
        )
    return found


def as_source(data: Data, like: Any = None) -> Source:
    """What a user gives as data, with its images still unread where that can be.

    Args:
        data: a name, a source, a data set, or a pair of images and labels.
        like: as in `load`, for data that are given by name.
    """
    if isinstance(data, str):
        return source(data, like)
    if isinstance(data, Source):
        return data
    if not isinstance(data, Dataset):
        images, labels = (torch.as_tensor(part) for part in data)
        names = tuple(f"{i:05d}" for i in range(len(labels)))
        data = Dataset("arrays", images, labels, (), names)
    if len(set(data.names)) < len(data):
        raise InputError(f"two images of {data.name} have the same name: give each its own")
    # ids would be hashes of all images
    whole = Problems.make(data.images, data.labels, ids=range(len(data)))
    return Source(
        data.name, whole.labels, data.classes, data.names, lambda rows: whole.images[list(rows)]
    )


def known_data() -> dict[str, str]:
    """Names that `load` takes, with a line about each."""
    return REGISTRY.summaries()


def risk(name: str) -> str:
    """What opening the data ``name`` does beyond reading data; empty if nothing."""
    return REGISTRY.risk(name)


def _wanted(like: Any) -> Traits:
    return Traits() if like is None else traits(like)


def _for_traits(open_data: Callable[[Name, Traits], Source]) -> Opener:
    """An opener for any victim, of one that knows what victims say of themselves."""
    return lambda name, like: open_data(name, _wanted(like))


def _from_plugin(point: EntryPoint, name: Name, like: Any) -> Source:
    build = load_plugin(point, "data", DataError)
    # options are the plugin's own business, so it gets all that follows the colon
    rest = name.text.removeprefix(name.kind).removeprefix(":")
    with foreign_code(f"{name.text} failed in {point.value}", DataError):
        data = build(rest, like)
    if not isinstance(data, Dataset):
        raise DataError(
            f"the plugin {point.value} returned a {type(data).__name__}: it must return a "
            f"brusle.data.Dataset"
        )
    return Source(
        name.text, data.labels, data.classes, data.names, lambda rows: data.images[list(rows)]
    )


REGISTRY: Registry[Opener] = Registry(
    "data",
    "data",
    {
        "sample": Kind(
            _for_traits(sample),
            "sample",
            "200 CIFAR-10 test images, 20 of each class (bundled)",
            risk="",
        ),
        "cifar10": Kind(
            _for_traits(cifar10.source),
            "cifar10:test|train",
            "CIFAR-10 (`brusle data fetch cifar10`). Options: dir=DIR",
            risk="",
        ),
        "stl10": Kind(
            _for_traits(stl10.source),
            "stl10:test|train",
            "STL-10 (`brusle data fetch stl10`). Options: dir=DIR",
            risk="",
        ),
        "imagenet": Kind(
            _for_traits(imagenet),
            "imagenet:DIR",
            "ImageNet photographs in class folders or with a labels.csv, framed for the victim",
            risk="",
        ),
        "folder": Kind(
            _for_traits(folder),
            "folder:DIR",
            "your images in a folder for each class or with a labels.csv. Options: size=N",
            risk="",
        ),
        "hf-data": Kind(
            _for_traits(hugging_face),
            "hf-data:DIR|OWNER/REPO?split=test",
            "A data set of Hugging Face's datasets. Options: image=COLUMN, label=COLUMN, "
            "by=name|number, size=N, config=, revision=",
            risk="may fetch data from anybody's repository",
        ),
        "npz": Kind(
            _for_traits(npz),
            "npz:FILE",
            "arrays images (or x) and labels (or y). Options: layout=nchw|nhwc",
            risk="",
        ),
    },
    _from_plugin,
)
