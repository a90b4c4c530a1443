"""The pictures of a run folder: what a finished evaluation shows at a glance."""

from __future__ import annotations

from pathlib import Path

from brusle.evaluation.storing.runs import Run
from brusle.report.curves import curve
from brusle.report.gallery import gallery, run_examples


def write_pictures(run: Run, folder: Path) -> None:
    """Write ``curve.png``, and ``gallery.png`` if anything was fooled."""
    curve(run, folder / "curve.png")
    examples = run_examples(run)
    if examples:
        gallery(examples, folder / "gallery.png", f"{run.victim} on {run.data}")
