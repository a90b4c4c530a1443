"""``brusle export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from brusle.cli.output import json_option, print_json, say

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--to", type=_FILE, help="Rows of all attacks, to FILE.csv, FILE.json or FILE.parquet."
)
@click.option(
    "--images",
    type=click.Path(file_okay=False, path_type=Path),
    help="Adversarial images as PNG, to this folder.",
)
@click.option("--npz", type=_FILE, help="Adversarial images as arrays, to FILE.npz.")
@click.option(
    "--traces",
    type=_FILE,
    help="What searches found on their way (`evaluate --trace`), a line of JSON each, to "
    "FILE.jsonl.",
)
@click.option("--data", help="Where the original images are. Default: as the run says.")
@json_option("Print what was written as JSON.")
def command(
    run: Path,
    to: Path | None,
    images: Path | None,
    npz: Path | None,
    traces: Path | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Write what the folder RUN holds in other formats; also while it is running.

    Adversarial images are those of the successes, rebuilt from the originals and the stored edits.
    """
    from brusle.evaluation.storing.export import (
        export_images,
        export_npz,
        export_rows,
        export_traces,
    )

    if to is None and images is None and npz is None and traces is None:
        raise click.UsageError("say what to write: --to, --images, --npz or --traces")
    written: list[dict[str, Any]] = []
    if to is not None:
        written.append({"what": "rows", "count": export_rows(run, to), "to": str(to)})
    if images is not None:
        count = export_images(run, images, data)
        written.append({"what": "images", "count": count, "to": str(images)})
    if npz is not None:
        written.append({"what": "images", "count": export_npz(run, npz, data), "to": str(npz)})
    if traces is not None:
        count = export_traces(run, traces)
        written.append({"what": "traces", "count": count, "to": str(traces)})
    if as_json:
        print_json(written)
        return
    for part in written:
        say(f"{part['count']} {part['what']} written to {part['to']}")
