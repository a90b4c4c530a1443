"""Data sets of Hugging Face's datasets: a folder on the disk, or a repository of the hub.

Only the images that are chosen are decoded, by the reader of all image files, and not by datasets.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brusle.data.folders import class_numbers, same_size, take_fit
from brusle.data.images import Framing, Shape, decode_picture, frame, open_picture
from brusle.data.sets import Source
from brusle.errors import DataError, InputError
from brusle.foreign import foreign_code, quiet
from brusle.names import Name, hint
from brusle.packages import need, need_version
from brusle.text import brief, shortened
from brusle.victim import Traits

_SAVED = ("dataset_dict.json", "state.json")  # what save_to_disk writes
_OLDEST = (4,)


@dataclass(frozen=True)
class _Row:
    """A row of a table, as messages call it."""

    number: int
    table: str

    def __str__(self) -> str:
        return f"row {self.number} of {self.table}"


def hugging_face(name: Name, wanted: Traits) -> Source:
    """``hf-data:DIR`` or ``hf-data:OWNER/REPO``: a column of images and one of labels."""
    package = need("datasets", name.text, DataError)
    need_version(package, _OLDEST, "runs no programs that lie beside data", DataError)
    framing, shape = take_fit(name, wanted)
    by = name.take_choice("by", ("name", "number"), "name")
    split, image, label = name.take("split"), name.take("image"), name.take("label")
    config, revision = name.take("config"), name.take("revision")
    name.done()
    with quiet(package):
        opened = _opened(package, name, config, revision)
        split, table = _split(name, opened, split)
        features = table.features
        image = image or _only(name, features, "image", package.Image)
        label = label or _only(name, features, "label", package.ClassLabel)
        for column in (image, label):
            if column not in features:
                raise InputError(f"{name.text} has no column {column!r}{hint(column, features)}")
        with foreign_code(f"{name.text} cannot be read", DataError):
            values = table.select_columns([label]).with_format(None)[:][label]
            # as bytes or files: what is in them, our own reader says
            pictures = table.select_columns([image]).cast_column(image, package.Image(decode=False))
    labels, names = _labels(package, name, features[label], values)
    labels, classes = _classes(name, labels, names, wanted.classes, by)
    rows = [_Row(number, name.text) for number in range(len(labels))]
    read: Callable[[_Row], Tensor] = _Reader(pictures, image, shape, framing)
    if shape is None and framing is None and rows:
        read = same_size(read, rows[0])
    return Source(
        name.text,
        torch.tensor(labels, dtype=torch.int64),
        classes,
        tuple(f"{split}-{row.number:05d}" if split else f"{row.number:05d}" for row in rows),
        lambda chosen: torch.stack([read(rows[number]) for number in chosen]),
    )


@dataclass(frozen=True)
class _Reader:
    """Decodes the image of a row."""

    table: Any
    column: str
    shape: Shape | None
    framing: Framing | None

    def __call__(self, row: _Row) -> Tensor:
        cell = self.table[row.number][self.column]
        channels = self.shape[0] if self.shape else 3
        if isinstance(cell, Mapping) and cell.get("bytes"):
            picture = decode_picture(io.BytesIO(cell["bytes"]), str(row), channels)
        elif isinstance(cell, Mapping) and cell.get("path"):
            picture = open_picture(cell["path"], channels)
        else:
            raise DataError(f"{row} has no image: leave such rows out")
        return frame(picture, str(row), self.shape, self.framing)


def _opened(package: Any, name: Name, config: str | None, revision: str | None) -> Any:
    """The tables by split, or the only table."""
    folder = Path(name.rest).expanduser()
    if not name.rest or folder.is_file():
        raise InputError(f"data {name.text!r} names no folder or repository: write hf-data:DIR")
    if folder.is_dir() and any((folder / mark).exists() for mark in _SAVED):
        if config or revision:
            raise InputError(f"{folder} was saved as it is: leave config= and revision= out")
        with foreign_code(f"{name.text} cannot be opened", DataError):
            return package.load_from_disk(str(folder))
    if not folder.is_dir() and name.rest.startswith(("/", ".", "~")):
        raise DataError(f"{folder} is no folder: check the path in {name.text!r}")
    place = str(folder) if folder.is_dir() else name.rest
    with foreign_code(f"{name.text} cannot be opened", DataError):
        return package.load_dataset(place, name=config, revision=revision)


def _split(name: Name, opened: Any, asked: str | None) -> tuple[str, Any]:
    """The split that is asked for, or the only one; without a name if there are none."""
    if not isinstance(opened, Mapping):
        if asked:
            raise InputError(f"{name.text} has no splits: leave split= out")
        return "", opened
    known = list(opened)
    if asked is None and len(known) == 1:
        return known[0], opened[known[0]]
    if asked is None:
        raise InputError(f"{name.text} has several splits: add split= and one of {_list(known)}")
    if asked not in opened:
        raise InputError(f"{name.text} has no split {asked!r}{hint(asked, known)}")
    return asked, opened[asked]


def _only(name: Name, features: Mapping[str, Any], option: str, kind: type) -> str:
    """The only column of a kind; else the one that is called as the option."""
    found = [column for column, feature in features.items() if isinstance(feature, kind)]
    if len(found) == 1:
        return found[0]
    if option in features:
        return option
    raise InputError(
        f"{name.text} has {len(found) or 'no'} columns of {option}s: say which with {option}=, of "
        f"{_list(features)}"
    )


def _labels(
    package: Any, name: Name, feature: Any, values: list[Any]
) -> tuple[list[int], tuple[str, ...]]:
    """Numbers of the classes, and their names if they have any."""
    if None in values:
        raise DataError(f"{_Row(values.index(None), name.text)} has no label: leave such rows out")
    if isinstance(feature, package.ClassLabel):
        names = tuple(feature.names or ())
        numbered = names == tuple(map(str, range(len(names))))
        return values, () if numbered else names
    if all(type(value) is int for value in values):
        return values, ()
    if all(isinstance(value, str) for value in values):
        names = tuple(sorted(set(values)))
        places = {word: number for number, word in enumerate(names)}
        return [places[word] for word in values], names
    raise DataError(
        f"labels of {name.text} are {shortened(str(feature))}: give a column of class labels, "
        f"whole numbers or names"
    )


def _classes(
    name: Name,
    labels: list[int],
    names: tuple[str, ...],
    known: Sequence[str] | None,
    by: str,
) -> tuple[list[int], tuple[str, ...]]:
    """Labels and classes as the victim counts them; as the data do if it has no names."""
    if not known or not names:
        return labels, tuple(known or names)
    if by == "number":
        return labels, tuple(known)
    present = sorted({label for label in labels if 0 <= label < len(names)})
    remedy = "by=number takes its number as it is"
    numbers = class_numbers([names[one] for one in present], known, "class", name.text, remedy)
    places = dict(zip(present, numbers, strict=True))
    return [places.get(label, label) for label in labels], tuple(known)


def _list(columns: Mapping[str, Any] | Sequence[str]) -> str:
    return ", ".join(map(brief, columns))
