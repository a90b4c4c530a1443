"""Labelled images in memory (`Dataset`), and where they come from (`Source`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brusle.errors import DataError, InputError
from brusle.text import brief, storable

KEPT = 64 << 20  # bytes of images that `remembering` keeps: a hundred photographs
MOST_CLASSES = 1_000_000  # a larger label is no number of a class but a mistake


@dataclass(frozen=True)
class Dataset:
    """Labelled images.

    Attributes:
        name: as given to `load`.
        images: ``(n, c, h, w)`` float32 in [0, 1].
        labels: ``(n,)`` int64.
        classes: names of the classes.
        names: what each image is called in reports.
    """

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def balanced(self, limit: int) -> Dataset:
        """The first ``limit`` images in an order that takes one of each class in turn."""
        rows = balanced_order(self.labels)[:limit]
        names = tuple(self.names[row] for row in rows)
        return Dataset(self.name, self.images[rows], self.labels[rows], self.classes, names)


@dataclass(frozen=True)
class Source:
    """Labelled images that are not read yet: choose by label first, then read what was chosen.

    Attributes:
        name: as given to `source`.
        labels: ``(n,)`` int64.
        classes: names of the classes; empty if they have none.
        names: what each image is called in reports; all different.
        read: returns the images in some rows as ``(n, c, h, w)`` float32 in [0, 1].
    """

    name: str
    labels: Tensor
    classes: tuple[str, ...]
    names: tuple[str, ...]
    read: Callable[[Sequence[int]], Tensor]

    def __post_init__(self) -> None:
        if not len(self.labels):
            raise DataError(f"there are no images in {self.name}: give another folder or file")
        self._check_names()
        limit = len(self.classes) or MOST_CLASSES
        for label in (int(self.labels.min()), int(self.labels.max())):
            if not 0 <= label < limit:
                image = self.names[self.labels.tolist().index(label)]
                raise DataError(
                    f"image {image} of {self.name} has label {label}: labels must be 0 ... "
                    f"{limit - 1}"
                )

    def _check_names(self) -> None:
        """Results are looked up by the names of images, and stored as UTF-8."""
        if len(self.names) != len(self.labels):
            raise InputError(
                f"{self.name} has {len(self.labels)} labels and {len(self.names)} names: give one "
                f"each"
            )
        seen: set[str] = set()
        for name in self.names:
            if not isinstance(name, str) or storable(name) != name:
                raise InputError(
                    f"an image of {self.name} is called {brief(name)}, which is no text: rename it"
                )
            if name in seen:
                raise InputError(
                    f"two images of {self.name} have the same name, {brief(name)}: give each its "
                    f"own"
                )
            seen.add(name)

    def __len__(self) -> int:
        return len(self.labels)

    def order(self) -> list[int]:
        """All rows, in an order that takes one image of each class in turn."""
        return balanced_order(self.labels)

    def chosen(self, limit: int | None) -> Sequence[int]:
        """At most ``limit`` rows, evenly over the classes; None is all, in their order."""
        if limit is not None and limit < 1:
            raise InputError(f"limit is {limit}: it must be at least 1")
        return range(len(self)) if limit is None else self.order()[:limit]

    def take(self, rows: Sequence[int]) -> Dataset:
        """Read the images in ``rows``, and only these."""
        names = tuple(self.names[row] for row in rows)
        return Dataset(self.name, self.read(rows), self.labels[list(rows)], self.classes, names)

    def relabelled(self, labels: Mapping[str, int], classes: Sequence[str]) -> Source:
        """The images that ``labels`` names, with these labels of ``classes`` instead of their own.

        Raises:
            DataError: there is none of them.
        """
        own = [row for row, name in enumerate(self.names) if name in labels]
        names = tuple(self.names[row] for row in own)
        return Source(
            self.name,
            torch.tensor([labels[name] for name in names], dtype=torch.int64),
            tuple(classes),
            names,
            lambda rows: self.read([own[row] for row in rows]),
        )


def remembering(source: Source, most: int = KEPT) -> Source:
    """``source``, with the images that are read first kept in memory, up to ``most`` bytes.

    Whoever reads all images again and again, in the same order, finds those first ones each time;
    to keep the latest instead would be to find none.
    """
    return replace(source, read=_Remembering(source.read, most))


class _Remembering:
    """Reads images, and keeps the first of them."""

    def __init__(self, read: Callable[[Sequence[int]], Tensor], most: int) -> None:
        self._read, self._room = read, most
        self._kept: dict[int, Tensor] = {}

    def __call__(self, rows: Sequence[int]) -> Tensor:
        missing = [row for row in dict.fromkeys(rows) if row not in self._kept]
        if len(missing) == len(rows):  # all are new, or there are none
            images = self._read(rows)
            self._keep(rows, images)
            return images
        new = dict(zip(missing, self._read(missing), strict=True)) if missing else {}
        images = torch.stack([new[row] if row in new else self._kept[row] for row in rows])
        self._keep(missing, new.values())
        return images

    def _keep(self, rows: Iterable[int], images: Iterable[Tensor]) -> None:
        for row, image in zip(rows, images, strict=True):
            if image.nbytes <= self._room:
                self._kept[row] = image.clone()  # a part of a batch would keep all of it
                self._room -= image.nbytes


def balanced_order(labels: Tensor) -> list[int]:
    """Row numbers: the first image of each class, then the second of each, and so on."""
    seen: dict[int, int] = {}
    turn = []
    for at, label in enumerate(labels.tolist()):
        turn.append((seen.setdefault(label, 0), label, at))
        seen[label] += 1
    return [at for _, _, at in sorted(turn)]


def as_images(levels: NDArray[np.uint8]) -> Tensor:
    """8-bit levels as float32 in [0, 1]."""
    return torch.from_numpy(levels.astype(np.float32) / np.float32(255))


def different_names(names: Iterable[str]) -> tuple[str, ...]:
    """``names`` that are short to read and all different: images are looked up by them."""
    taken: set[str] = set()
    numbers: dict[str, int] = {}  # the next to try, so that many equal names are no long search
    result = []
    for name in names:
        plain = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "image"
        key = unique = plain.lower()  # some file systems do not tell a from A
        number = numbers.get(key, 1)
        while unique in taken:
            number += 1
            unique = f"{key}-{number}"
        numbers[key] = number
        taken.add(unique)
        result.append(plain if unique == key else f"{plain}-{number}")
    return tuple(result)
