"""The files of a run folder that people look at first, made from what is stored."""

from __future__ import annotations

from pathlib import Path

from brusle.evaluation.storing.export import write_folder
from brusle.evaluation.storing.runs import Run
from brusle.report.curve_sheet import write_curves
from brusle.report.gallery import run_examples, write_gallery


def write_files(run: Run, folder: Path) -> None:
    """Write rows, summary, adversarial images and pictures."""
    write_folder(run, folder)
    write_pictures(run, folder)


def write_pictures(run: Run, folder: Path) -> None:
    """Write ``curve.png``, and ``gallery.png`` if anything was fooled."""
    write_curves(run, folder / "curve.png")
    examples = run_examples(run)
    if examples:
        write_gallery(examples, folder / "gallery.png", f"{run.victim} on {run.data}")
