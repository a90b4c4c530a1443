"""A small run with traces and all outcomes, for pages that let people explore it."""

from pathlib import Path

import torch
from models import integer_model, own_labels, random_images
from tampering import tamper

import brusle
from brusle.data import Dataset
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Store

SHAPE, CLASSES, IMAGES = (3, 8, 8), 5, 10
CLASS_NAMES = ("cat", "dog", "emu", "fox", "gnu")
TRACED = (
    brusle.attacks.BruSLe(pixels=3, queries=40),
    brusle.attacks.PixelBandit(pixels=3, queries=40),
)
UNTRACED = brusle.attacks.SparseRS(pixels=3, queries=40)
REASON = "out of memory"


def explored_run(
    folder: Path,
    names: tuple[str, ...] = tuple(f"image-{at:02}" for at in range(IMAGES)),
    classes: tuple[str, ...] = CLASS_NAMES,
) -> Run:
    """Two attacks with traces on both goals, and one without; one image is wrong from the start.

    Of the last attack, the first two rows are made an error and an unverified success.
    """
    model, images = integer_model(SHAPE, CLASSES), random_images(len(names), SHAPE)
    labels = own_labels(model, images)
    labels[-1] = (labels[-1] + 1) % CLASSES
    data = Dataset("arrays", images, labels, classes, names)
    victim = model.victim()
    plan = {"targets": 1, "out": folder, "on_progress": None}
    both = ["untargeted", "targeted"]
    brusle.evaluate(victim, data, TRACED, both, trace=True, **plan)
    brusle.evaluate(victim, data, UNTRACED, "untargeted", **plan)
    _spoil(folder)
    return Run.open(folder, data)


def _spoil(folder: Path) -> None:
    with Store.read(folder) as store:
        last = store.settings()[-1]
        first, second = (row.problem for row in store.rows(last.number)[:2])
    mine = f"setting = {last.number} AND problem = "
    tamper(folder, "rows", f"{mine}{first}", status="error", error=REASON, final_label=-1)
    tamper(folder, "rows", f"{mine}{second}", status="unverified", error="the label changes")


def final_levels(run: Run, setting, row) -> torch.Tensor:
    """``(h, w, 3)`` bytes of the image that a row ended with, rebuilt by the store."""
    result = run.result(setting)
    at = [one.problem for one in run.stored(setting)].index(row.problem)
    return (result.images[at] * 255).round().byte().permute(1, 2, 0)
