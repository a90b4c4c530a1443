"""The files of a run folder that people look at first, made from what is stored."""

from __future__ import annotations

from pathlib import Path

from brusle.evaluation.storing.export import write_folder
from brusle.evaluation.storing.runs import Run
from brusle.report.curves import curve
from brusle.report.gallery import gallery, run_examples


def write_files(run: Run, folder: Path) -> None:
    """Write rows, summary, adversarial images and pictures."""
    write_folder(run, folder)
    write_pictures(run, folder)


def write_pictures(run: Run, folder: Path) -> None:
    """Write ``curve.png``, and ``gallery.png`` if anything was fooled."""
    curve(run, folder / "curve.png")
    examples = run_examples(run)
    if examples:
        gallery(examples, folder / "gallery.png", f"{run.victim} on {run.data}")
