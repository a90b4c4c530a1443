"""The stored results of a run in other formats: rows for tables, images for everything else."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from brusle.data import save_image
from brusle.errors import BrusleError, DataError, InputError
from brusle.evaluation.recheck import (
    Data,
    originals,
    place,
    rebuild,
    successes,
    title,
    victim_of,
)
from brusle.evaluation.store import Row, Store
from brusle.oracle import COLUMNS, Victim

_MAYBE = {"target": int, "loss": float}  # columns that are empty in some rows


def export_rows(folder: str | Path, path: str | Path, data: Data | None = None) -> int:
    """Write the rows of all settings to a .csv, .json or .parquet file.

    Args:
        folder: the run folder.
        path: the file.
        data: where the original images are, if not where ``pairs.json`` says. They are only asked
            for their width, and only if the run does not say it.

    Returns:
        The number of rows.
    """
    path = Path(path)
    if path.suffix not in _WRITERS:
        raise InputError(f"cannot tell the format of {path}: name it {', '.join(_WRITERS)}")
    rows = stored_rows(folder, data)
    _write(_WRITERS[path.suffix], rows, path)
    return len(rows)


def stored_rows(folder: str | Path, data: Data | None = None) -> list[dict[str, Any]]:
    """The rows of all settings; edits are a list of row, column and colour (8-bit levels)."""
    with Store.read(folder) as store:
        about = store.about()
        found = [
            (setting, row)
            for number, setting in store.settings().items()
            for row in sorted(store.rows(number), key=place)
        ]
    if not found:
        raise DataError(f"no attack is stored in {folder} yet: wait for the first")
    width = _width(folder, about, data)
    return [_as_dict(setting, row, width) for setting, row in found]


def export_images(folder: str | Path, out: str | Path, data: Data | None = None) -> int:
    """Write the adversarial image of every success as a PNG, in one folder for each setting.

    Args:
        folder: the run folder.
        out: where the folders are made.
        data: where the original images are, if not where ``pairs.json`` says.

    Returns:
        The number of images.
    """
    count = 0
    for setting, row, image in _adversarial(folder, data):
        if image.shape[0] not in (1, 3, 4):
            raise InputError(f"PNG knows no images of {image.shape[0]} channels: take --npz")
        aim = "" if row.target is None else f"-to-{row.target}"
        path = Path(out) / setting / f"{row.image}{aim}.png"
        _write(save_image, image, path)
        count += 1
    return count


def export_npz(folder: str | Path, path: str | Path, data: Data | None = None) -> int:
    """Write the adversarial image of every success to one file that ``npz:FILE`` reads.

    Arrays: images (8-bit levels, n x channels x height x width), labels (true ones), names,
    targets (-1 if untargeted), final_labels, and settings, the folder names of `export_images`.

    Args:
        folder: the run folder.
        path: the file.
        data: where the original images are, if not where ``pairs.json`` says.

    Returns:
        The number of images.
    """
    found = list(_adversarial(folder, data))
    if not found:
        raise DataError(f"no success is stored in {folder}: there is no adversarial image to write")
    rows = [row for _, row, _ in found]
    arrays = {
        "images": np.stack([(i * 255).round().byte().numpy() for _, _, i in found]),
        "labels": np.array([row.label for row in rows]),
        "names": np.array([row.image for row in rows]),
        "targets": np.array([-1 if row.target is None else row.target for row in rows]),
        "final_labels": np.array([row.final_label for row in rows]),
        "settings": np.array([setting for setting, _, _ in found]),
    }
    _write(_save_npz, arrays, Path(path))
    return len(found)


def _adversarial(folder: str | Path, data: Data | None) -> Iterator[tuple[str, Row, Tensor]]:
    """Setting (as a folder name), row and image of every stored success."""
    with Store.read(folder) as store:
        about, settings = store.about(), store.settings()
        rows = {number: successes(store, number) for number in settings}
    images = originals(folder, _maybe_victim(about), data)
    known = dict(zip(images.names, images.images, strict=True))
    for number, setting in settings.items():
        for row in rows[number]:
            yield _slug(number, setting), row, rebuild(row, known)


def _maybe_victim(about: Mapping[str, Any]) -> Victim | None:
    """The run's victim, which photographs are framed for; other images do without."""
    try:
        return victim_of(about, device="cpu")
    except BrusleError:
        return None


def _width(folder: str | Path, about: Mapping[str, Any], data: Data | None) -> int:
    """How wide images are: stored positions are ``row * width + column``."""
    if "shape" in about:
        return int(about["shape"][2])
    return originals(folder, _maybe_victim(about), data).images.shape[3]


def _as_dict(setting: Mapping[str, Any], row: Row, width: int) -> dict[str, Any]:
    return {
        "attack": setting["attack"],
        "goal": setting["goal"],
        "pixel_budget": setting["pixels"],
        "query_limit": setting["queries"],
        "seed": setting["seed"],
        "eot": setting["eot"],
        "image": row.image,
        "id": row.problem,
        "label": row.label,
        "target": row.target,
        "clean_label": row.clean_label,
        "status": row.status,
        "stable": row.stable,
        "queries": row.queries,
        "pixels": row.pixels,
        "final_label": row.final_label,
        "loss": row.loss if math.isfinite(row.loss) else None,
        "found_by": row.found_by,
        **{f"queries_{name}": getattr(row, name) for name in COLUMNS},
        "error": row.error,
        "seconds": row.seconds,
        "edits": _edits(row, width),
    }


def _edits(row: Row, width: int) -> list[dict[str, Any]]:
    """Packed edits (see `brusle.evaluation.store.pack_edits`) without their original."""
    if not row.pixels:
        return []
    try:
        positions = np.frombuffer(row.edits[: 4 * row.pixels], dtype="<u4").tolist()
        levels = np.frombuffer(row.edits[4 * row.pixels :], dtype=np.uint8)
        colours = levels.reshape(row.pixels, -1).tolist()
    except ValueError as error:
        raise DataError(f"the stored edits of image {row.image} are damaged ({error})") from error
    return [
        {"row": at // width, "column": at % width, "colour": colour}
        for at, colour in zip(positions, colours, strict=True)
    ]


def _slug(number: int, setting: Mapping[str, Any]) -> str:
    """A name for files; settings that differ in their options alone have different numbers."""
    return re.sub(r"[^a-z0-9]+", "-", f"{number:02d} {title(setting)}".lower())


def _write(writer: Callable[[Any, Path], None], content: Any, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer(content, path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def _save_npz(arrays: Mapping[str, Any], path: Path) -> None:
    with path.open("wb") as file:  # NumPy would add .npz to a path
        np.savez_compressed(file, **arrays)


def _save_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"edits": json.dumps(row["edits"])} for row in rows)


def _save_json(rows: Sequence[dict[str, Any]], path: Path) -> None:
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _save_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(
            'Parquet is written by pyarrow, which is not installed: pip install "brusle[parquet]"'
        ) from error
    whole = arrow.int64()
    edit = arrow.struct({"row": whole, "column": whole, "colour": arrow.list_(whole)})
    kinds = {
        int: whole,
        float: arrow.float64(),
        bool: arrow.bool_(),
        str: arrow.string(),
        list: arrow.list_(edit),
    }
    # said, not guessed: a column that is empty in this run has the type it has in others
    schema = arrow.schema(
        [(name, kinds[_MAYBE.get(name, type(value))]) for name, value in rows[0].items()]
    )
    parquet.write_table(arrow.Table.from_pylist(list(rows), schema=schema), path)


_WRITERS: dict[str, Callable[[Sequence[dict[str, Any]], Path], None]] = {
    ".csv": _save_csv,
    ".json": _save_json,
    ".parquet": _save_parquet,
}
