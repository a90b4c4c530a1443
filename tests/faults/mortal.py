"""An evaluation for tests to kill.

Its victim takes some time for every call and writes to a log, before it answers, a line for each
call: the keys of the images, which say whose they are and which draw it is.
"""

import os
import time
from collections import Counter
from pathlib import Path

import torch
from models import integer_model, own_labels, random_images

from brusle.attacks import BruSLe, Ensemble, Minimal, PixelBandit, Pointwise, Restarts, SparseRS
from brusle.evaluation import Run, evaluate

SHAPE, CLASSES, IMAGES = (3, 8, 8), 4, 20
ATTACKS = {
    "brusle": [BruSLe(2, 60)],
    "pixel-bandit": [PixelBandit(1, 60)],
    "pointwise": [Pointwise(8, 60)],
    "restarts": [Restarts(BruSLe(2, 20), 3)],
    "ensemble": [Ensemble([SparseRS(2, 30), BruSLe(2, 30)])],
    "minimal": [Minimal(BruSLe(6, 20), 60)],
    "two": [BruSLe(2, 30), SparseRS(2, 30)],
}


class Mortal:
    """The small integer model; stubborn, it never changes its mind."""

    name, output, device = "mortal", "logits", torch.device("cpu")

    def __init__(self, log: Path, delay: float, stubborn: bool = False) -> None:
        self.model, self.delay, self.stubborn = integer_model(SHAPE, CLASSES), delay, stubborn
        self.file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        raise AssertionError("an evaluation asks with keys")

    def draw(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        os.write(self.file, (" ".join(map(str, keys.tolist())) + "\n").encode())
        time.sleep(self.delay)
        scores = self.model.function(images)
        if self.stubborn:
            scores = scores / 1e9 + torch.eye(CLASSES)[0]
        return scores


def run(folder: Path | None, log: Path, kind: str, delay: float = 0, **options) -> Run:
    name, _, stubborn = kind.partition("-against-")
    victim = Mortal(log, delay, bool(stubborn))
    images = random_images(IMAGES, SHAPE)
    labels = own_labels(victim.model, images)
    data = (images, torch.zeros_like(labels) if stubborn else labels)
    return evaluate(victim, data, ATTACKS[name], "untargeted", folder, seed=2, **options)


def calls(log: Path) -> list[list[int]]:
    """The keys of each call that was written whole."""
    text = log.read_text() if log.exists() else ""
    return [[int(key) for key in line.split()] for line in text.split("\n")[:-1]]


def asked(log: Path) -> Counter[int]:
    """How often each draw of each problem was asked for."""
    return Counter(key for call in calls(log) for key in call)


def live(folder: Path, log: Path, kind: str, delay: float) -> None:
    """One life, in a process of its own."""
    torch.set_num_threads(1)  # threads do not outlive a fork
    run(folder, log, kind, delay, on_warning=lambda text: None)
