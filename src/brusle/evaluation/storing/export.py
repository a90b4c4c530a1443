"""The stored results of a run in other formats: rows for tables, images for everything else."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from brusle.data import Data, save_image
from brusle.errors import DataError, InputError
from brusle.evaluation.record import Row
from brusle.evaluation.storing.rows import edits_of
from brusle.evaluation.storing.runs import Run, as_dict
from brusle.files import file_name, write_text, written
from brusle.names import require_ending
from brusle.packages import need
from brusle.text import shown

Table = Iterable[dict[str, Any]]
_MAYBE = {"target": int, "loss": float, "pixels_needed": int}  # columns that are empty in some rows
_FORMULA = ("=", "+", "-", "@", "'")  # with the apostrophe that a reader may take off again
_PICTURES = (1, 3, 4)  # channels that a picture can have


def export_rows(folder: str | Path, path: str | Path) -> int:
    """Write the rows of all settings to a .csv, .json or .parquet file.

    Returns:
        The number of rows.
    """
    path = Path(path)
    ending = require_ending(path, list(_WRITERS))
    run = Run.open(folder)
    with run.store:
        count = sum(sum(counts.values()) for counts in run.store.counts().values())
        if not count:
            raise DataError(f"no attack is stored in {folder} yet: wait for the first")
        _write(_WRITERS[ending], stored_rows(run), path)
    return count


def stored_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Rows with all details; edits are a list of row, column and colour (8-bit levels)."""
    for setting in run.settings:
        for row in run.stored(setting):
            details = {"seconds": row.seconds, "edits": _edits(row, run.shape)}
            yield as_dict(setting, row) | details


def write_folder(run: Run, folder: Path) -> None:
    """What people look at first in a run folder."""
    write_images(run, folder / "adversarial")
    _write(save_csv, run.rows(), folder / "rows.csv")
    _write(_save_json, run.rows(), folder / "rows.json")
    write_text(folder / "run.json", json.dumps(run.as_dict(), indent=2) + "\n")


def export_images(folder: str | Path, out: str | Path, data: Data | None = None) -> int:
    """Write the adversarial image of every success as a PNG, in one folder for each setting.

    Args:
        folder: the run folder.
        out: where the folders are made.
        data: where the original images are, if not where the run says.

    Returns:
        The number of images.
    """
    run = Run.open(folder, data)
    with run.store:
        channels = run.shape[0]
        if channels not in _PICTURES:
            raise InputError(f"PNG knows no images of {channels} channels: take --npz")
        return write_images(run, Path(out))


def write_images(run: Run, out: Path) -> int:
    """The same of a run; images that no picture format can hold are left out."""
    if run.shape[0] not in _PICTURES:
        return 0
    count = 0
    for setting, row, image in run.adversarial():
        aim = "" if row.target is None else f"-to-{row.target}"
        # many, and made again at any time from what is stored: not worth waiting for the disk
        save_image(image, out / setting.slug / f"{file_name(row.image)}{aim}.png", durable=False)
        count += 1
    return count


def export_npz(folder: str | Path, path: str | Path, data: Data | None = None) -> int:
    """Write the adversarial image of every success to one file that ``npz:FILE`` reads.

    Arrays: images (8-bit levels, n x channels x height x width), labels (true ones), names,
    targets (-1 if untargeted), final_labels, and settings, the folder names of `export_images`.

    Args:
        folder: the run folder.
        path: the file, FILE.npz.
        data: where the original images are, if not where the run says.

    Returns:
        The number of images.
    """
    require_ending(path, [".npz"])
    images, rows, settings = [], [], []
    run = Run.open(folder, data)
    with run.store:
        for setting, row, image in run.adversarial():
            images.append((image * 255).round().byte().numpy())
            rows.append(row)
            settings.append(setting.slug)
    if not rows:
        raise DataError(f"no success is stored in {folder}: there is no adversarial image to write")
    arrays = {
        "images": np.stack(images),
        "labels": np.array([row.label for row in rows]),
        "names": np.array([row.image for row in rows]),
        "targets": np.array([-1 if row.target is None else row.target for row in rows]),
        "final_labels": np.array([row.final_label for row in rows]),
        "settings": np.array(settings),
    }
    _write(_save_npz, arrays, Path(path))
    return len(rows)


def export_traces(folder: str | Path, path: str | Path) -> int:
    """Write what searches found on their way, a line of JSON each; return how many.

    Args:
        folder: the run folder; raises if it has no traces.
        path: the file, ``.jsonl``.
    """
    require_ending(path, [".jsonl"])
    run = Run.open(folder)
    with run.store, written(path) as place, place.open("w", encoding="utf-8") as file:
        count = 0
        for setting in run.settings:
            for row in run.stored(setting):
                trace = run.trace(setting, row)
                if trace is not None:
                    file.write(json.dumps(as_dict(setting, row) | trace.as_dict()) + "\n")
                    count += 1
        if not count:
            raise InputError(f"{folder} has no traces: `brusle evaluate --trace` keeps them")
    return count


def _edits(row: Row, shape: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Where the changed pixels are, and what they have become."""
    positions, colours = (part.tolist() for part in edits_of(row, shape))
    width = shape[2]
    return [
        {"row": at // width, "column": at % width, "colour": colour}
        for at, colour in zip(positions, colours, strict=True)
    ]


def _write(writer: Callable[[Any, Path], None], content: Any, path: Path) -> None:
    with written(path) as file:
        writer(content, file)


def _save_npz(arrays: Mapping[str, Any], path: Path) -> None:
    with path.open("wb") as file:  # NumPy would add .npz to a path
        np.savez_compressed(file, **arrays)


def save_csv(rows: Table, path: Path) -> None:
    """Write rows as CSV; texts are as docs/runs.md says."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer: csv.DictWriter[str] | None = None
        for row in rows:
            if writer is None:
                writer = csv.DictWriter(file, fieldnames=list(row))
                writer.writeheader()
            writer.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: Any) -> Any:
    """A value that no spreadsheet takes for a formula, and that is on one line."""
    if isinstance(value, list):
        return json.dumps(value)
    if not isinstance(value, str):
        return value
    text = shown(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def _save_json(rows: Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        before = "[\n"
        for row in rows:
            file.write(before + json.dumps(row))
            before = ",\n"
        file.write("\n]\n")


def _save_parquet(rows: Table, path: Path) -> None:
    arrow = need("pyarrow", "Parquet", InputError)
    parquet = need("pyarrow.parquet", "Parquet", InputError)
    whole = arrow.int64()
    edit = arrow.struct({"row": whole, "column": whole, "colour": arrow.list_(whole)})
    kinds = {
        int: whole,
        float: arrow.float64(),
        bool: arrow.bool_(),
        str: arrow.string(),
        list: arrow.list_(edit),
    }
    table = list(rows)
    # said, not guessed: a column that is empty in this run has the type it has in others
    schema = arrow.schema(
        [(name, kinds[_MAYBE.get(name, type(value))]) for name, value in table[0].items()]
    )
    parquet.write_table(arrow.Table.from_pylist(table, schema=schema), path)


_WRITERS: dict[str, Callable[[Table, Path], None]] = {
    ".csv": save_csv,
    ".json": _save_json,
    ".parquet": _save_parquet,
}
