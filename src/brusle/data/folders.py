"""Photographs in folders: one folder for each class, or all in one with a ``labels.csv``."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from brusle.data.images import Framing, Shape, fit_for, imagenet_framing, read_image
from brusle.data.sets import Source, file_names
from brusle.errors import DataError, InputError
from brusle.names import Name, hint
from brusle.oracle import Traits
from brusle.special_files import refuse_special

_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


@dataclass(frozen=True)
class _Listing:
    """Image files, the class number of each, and the names of the classes."""

    files: list[Path]
    labels: list[int]
    classes: tuple[str, ...]


def imagenet(name: Name, like: Traits) -> Source:
    """``imagenet:DIR``: the number of a class is its place among the sorted folders."""
    name.done()
    framing = like.framing or imagenet_framing(like.shape[1:] if like.shape else (224, 224))
    shape = like.shape or (3, *framing.crop)
    place = _place(name)
    return _source(name, place, _listing(place, like.classes, _by_place), _reader(shape, framing))


def folder(name: Name, like: Traits) -> Source:
    """``folder:DIR``: classes of any name, which are found among the victim's if it names them."""
    framing, shape = _wanted(name, like)
    place = _place(name)
    listing = _listing(place, like.classes, _by_name)
    free = shape is None and framing is None and listing.files
    read = _same_size_reader(listing.files[0]) if free else _reader(shape, framing)
    return _source(name, place, listing, read)


def _wanted(name: Name, like: Traits) -> tuple[Framing | None, Shape | None]:
    """Framing and shape from the option ``size`` or the victim; None where neither says."""
    size = name.take("size")
    name.done()
    if size is not None and (not size.isdecimal() or int(size) < 1):
        raise InputError(
            f"option size of {name.text!r} is {size!r}: give a whole number of at least 1"
        )
    return fit_for(like, None if size is None else int(size))


def _place(name: Name) -> Path:
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
    if (folder / "labels.csv").exists():
        return _from_csv(folder / "labels.csv", known)
    inside = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not inside:
        raise DataError(
            f"{folder} has no folder for each class and no labels.csv: see docs/data.md for both"
        )
    numbers, classes = number(folder, [path.name for path in inside], known)
    files: list[Path] = []
    labels: list[int] = []
    for label, path in zip(numbers, inside, strict=True):
        images = sorted(p for p in path.rglob("*") if _is_image(p))
        files += images
        labels += [label] * len(images)
    return _Listing(files, labels, classes)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")


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
    places: dict[str, list[int]] = {}
    for number, word in enumerate(known):
        places.setdefault(word.lower(), []).append(number)
    numbers = []
    for word in names:
        found = places.get(word.lower(), [])
        if not found:
            raise InputError(
                f"folder {word!r} of {folder} is no class of the victim{hint(word, known, most=3)}"
            )
        if len(found) > 1:
            raise InputError(
                f"folder {word!r} of {folder} could be class {' or '.join(map(str, found))} of "
                f"the victim: use a labels.csv with class numbers"
            )
        numbers += found
    return numbers, tuple(known)


def _from_csv(path: Path, known: Sequence[str] | None) -> _Listing:
    files: list[Path] = []
    labels: list[int] = []
    names: dict[int, str] = {}
    refuse_special(path)
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
                image, number = path.parent / (row["file"] or ""), row["class_index"]
                if not image.is_file():
                    raise DataError(
                        f"{path} line {rows.line_num} lists {row['file']}, which does not exist: "
                        f"remove the line or add the file"
                    )
                if not (number or "").strip().isdecimal():
                    raise DataError(
                        f"{path} line {rows.line_num} has class_index {number!r}: give a whole "
                        f"number of at least 0"
                    )
                files.append(image)
                labels.append(int(number))
                names.setdefault(labels[-1], row.get("class_name") or "")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}): give CSV in UTF-8") from error
    return _Listing(files, labels, _csv_classes(names, known))


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


def _same_size_reader(first: Path) -> Callable[[Path], Tensor]:
    shape = read_image(first).shape

    def read(path: Path) -> Tensor:
        image = read_image(path)
        if image.shape != shape:
            raise InputError(
                f"{path} is {image.shape[1]} x {image.shape[2]} pixels, but {first.name} is "
                f"{shape[1]} x {shape[2]}: add ?size=N to bring all to N x N"
            )
        return image

    return read


def _source(name: Name, place: Path, listing: _Listing, read: Callable[[Path], Tensor]) -> Source:
    def images(rows: Sequence[int]) -> Tensor:
        return torch.stack([read(listing.files[row]) for row in rows])

    # a labels.csv may list files elsewhere
    short = [p.relative_to(place) if p.is_relative_to(place) else p for p in listing.files]
    names = file_names("-".join(path.with_suffix("").parts) for path in short)
    labels = torch.tensor(listing.labels, dtype=torch.int64)
    return Source(name.text, labels, listing.classes, names, images)
