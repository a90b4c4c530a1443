"""Photographs in folders: one folder for each class, or all in one with a ``labels.csv``."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from brusle.data.images import Framing, Shape, fit_for, imagenet_framing, read_image
from brusle.data.sets import MOST_CLASSES, Source, different_names
from brusle.errors import DataError, InputError
from brusle.files import require_file
from brusle.names import Name, hint, whole_number
from brusle.text import brief, shortened
from brusle.victim import Traits

_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


@dataclass(frozen=True)
class _Listing:
    """Image files, the class number of each, and the names of the classes."""

    files: list[Path]
    labels: list[int]
    classes: tuple[str, ...]


def imagenet(name: Name, wanted: Traits) -> Source:
    """``imagenet:DIR``: the number of a class is its place among the sorted folders."""
    name.done()
    framing = wanted.framing or imagenet_framing(wanted.shape[1:] if wanted.shape else (224, 224))
    shape = wanted.shape or (3, *framing.crop)
    root = _root(name)
    return _source(name, root, _listing(root, wanted.classes, _by_place), _reader(shape, framing))


def folder(name: Name, wanted: Traits) -> Source:
    """``folder:DIR``: classes of any name, which are found among the victim's if it names them."""
    framing, shape = take_fit(name, wanted)
    name.done()
    root = _root(name)
    listing = _listing(root, wanted.classes, _by_name)
    read = _reader(shape, framing)
    if shape is None and framing is None and listing.files:
        read = same_size(read, listing.files[0])
    return _source(name, root, listing, read)


def take_fit(name: Name, wanted: Traits) -> tuple[Framing | None, Shape | None]:
    """Framing and shape from the option ``size`` or the victim; None where neither says."""
    size = name.take("size")
    if size is None:
        return fit_for(wanted)
    number = whole_number(size)
    if not number:
        raise InputError(
            f"option size of {brief(name.text)} is {brief(size)}: give a whole number of at least 1"
        )
    return fit_for(wanted, number)


def _root(name: Name) -> Path:
    if not name.rest:
        raise InputError(f"data {name.text!r} names no folder: write {name.kind}:DIR")
    path = Path(name.rest).expanduser()
    if not path.is_dir():
        raise DataError(f"{path} is no folder: check the path in {name.text!r}")
    return path


def _listing(
    folder: Path,
    known: Sequence[str] | None,
    number: Callable[[Path, list[str], Sequence[str] | None], tuple[list[int], tuple[str, ...]]],
) -> _Listing:
    """What is in ``folder``; ``number`` gives class folders their numbers."""
    if os.path.lexists(folder / "labels.csv"):
        return _from_csv(folder / "labels.csv", known)
    try:
        inside = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError as error:
        raise _unreadable(error) from error
    if not inside:
        raise DataError(
            f"{folder} has no folder for each class and no labels.csv: see docs/data.md for both"
        )
    numbers, classes = number(folder, [path.name for path in inside], known)
    files: list[Path] = []
    labels: list[int] = []
    for label, path in zip(numbers, inside, strict=True):
        images = _images(path)
        files += images
        labels += [label] * len(images)
    return _Listing(files, labels, classes)


def _images(folder: Path) -> list[Path]:
    """The image files in a folder and the folders in it; a link to a folder is not followed."""

    def refuse(error: OSError) -> NoReturn:
        raise _unreadable(error) from error

    walk = os.walk(folder, onerror=refuse)
    found = (Path(inside, name) for inside, _, names in walk for name in names)
    return sorted(path for path in found if _is_image(path))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


def _unreadable(error: OSError) -> DataError:
    return DataError(f"cannot open {error.filename}: {error.strerror}; change its permissions")


def _by_place(
    folder: Path, names: list[str], known: Sequence[str] | None
) -> tuple[list[int], tuple[str, ...]]:
    """Numbers by sorted place. With fewer folders than classes, places would be wrong numbers."""
    if known and len(known) != len(names):
        raise InputError(
            f"{folder} has {len(names)} class folders and the victim {len(known)} classes: "
            f"add a labels.csv with the class numbers"
        )
    return list(range(len(names))), tuple(known or names)


def _by_name(
    folder: Path, names: list[str], known: Sequence[str] | None
) -> tuple[list[int], tuple[str, ...]]:
    """Numbers of the victim's classes of the same names; by sorted place if it has no names."""
    if not known:
        return list(range(len(names))), tuple(names)
    remedy = "a labels.csv with class numbers says which"
    return class_numbers(names, known, "folder", str(folder), remedy), tuple(known)


def class_numbers(
    names: Iterable[str], known: Sequence[str], what: str, where: str, remedy: str
) -> list[int]:
    """Numbers of the victim's classes that are called ``names``; capitals do not matter.

    Args:
        names: as the data have them.
        known: the victim's.
        what: what has such a name, for messages.
        where: the data, for messages.
        remedy: what to do about a name that is not found, or found twice.
    """
    places: dict[str, list[int]] = {}
    for number, word in enumerate(known):
        places.setdefault(word.lower(), []).append(number)
    numbers = []
    for word in names:
        found = places.get(word.lower(), [])
        if not found:
            raise InputError(
                f"{what} {brief(word)} of {where} is no class of the victim"
                f"{hint(word, known, most=3)} ({remedy})"
            )
        if len(found) > 1:
            raise InputError(
                f"{what} {brief(word)} of {where} could be class "
                f"{' or '.join(map(str, found))} of the victim: {remedy}"
            )
        numbers += found
    return numbers


def _from_csv(path: Path, known: Sequence[str] | None) -> _Listing:
    require_file(path)
    files: list[Path] = []
    labels: list[int] = []
    names: dict[int, str] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            for column in ("file", "class_index"):
                if column not in (rows.fieldnames or ()):
                    raise DataError(
                        f"{path} has no column {column!r}: its first line must name at least "
                        f"file,class_index"
                    )
            for row in rows:
                files.append(_listed(path, rows.line_num, row["file"] or ""))
                labels.append(_class_index(path, rows.line_num, row["class_index"] or ""))
                names.setdefault(labels[-1], row.get("class_name") or "")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}): give CSV in UTF-8") from error
    return _Listing(files, labels, _csv_classes(names, known))


def _listed(path: Path, line: int, name: str) -> Path:
    """The file that a line of ``path`` names."""
    image = path.parent / name
    try:
        missing = not image.is_file()
    except OSError:  # a name that no file can have
        missing = True
    if missing:
        raise DataError(
            f"{path} line {line} lists {shortened(name)}, which does not exist: remove the line or "
            f"add the file"
        )
    return image


def _class_index(path: Path, line: int, text: str) -> int:
    """The class number that a line of ``path`` gives."""
    number = whole_number(text.strip())
    if number is None or number >= MOST_CLASSES:
        raise DataError(
            f"{path} line {line} has class_index {brief(text)}: give a whole number from 0 to "
            f"{MOST_CLASSES - 1}"
        )
    return number


def _csv_classes(names: dict[int, str], known: Sequence[str] | None) -> tuple[str, ...]:
    """The names of all classes; a file that lists only some classes cannot name the others."""
    count = len(known) if known else max(names, default=-1) + 1
    if known and any(not names.get(number) for number in range(count)):
        return tuple(known)
    if not any(names.values()):
        return ()
    return tuple(names.get(number) or f"class {number}" for number in range(count))


def _reader(shape: Shape | None, framing: Framing | None) -> Callable[[Path], Tensor]:
    return lambda path: read_image(path, shape, framing)


def same_size(read: Callable[[Any], Tensor], first: Any) -> Callable[[Any], Tensor]:
    """``read``, for images of the size of the ``first`` one only."""
    shape = read(first).shape

    def read_checked(one: Any) -> Tensor:
        image = read(one)
        if image.shape != shape:
            raise InputError(
                f"{one} is {image.shape[1]} x {image.shape[2]} pixels, but "
                f"{getattr(first, 'name', first)} is {shape[1]} x {shape[2]}: add ?size=N to bring "
                f"all to N x N"
            )
        return image

    return read_checked


def _source(name: Name, root: Path, listing: _Listing, read: Callable[[Path], Tensor]) -> Source:
    def images(rows: Sequence[int]) -> Tensor:
        return torch.stack([read(listing.files[row]) for row in rows])

    # a labels.csv may list files elsewhere
    short = [p.relative_to(root) if p.is_relative_to(root) else p for p in listing.files]
    names = different_names("-".join(path.with_suffix("").parts) for path in short)
    labels = torch.tensor(listing.labels, dtype=torch.int64)
    return Source(name.text, labels, listing.classes, names, images)
