"""An evaluation for `test_survival.py` to kill: python survivor.py RUN_FOLDER LOG.

Its victim appends to LOG the key of every image it is asked for, which tells whose image it was.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from models import integer_model, own_labels, random_images

from brusle.attacks import BruSLe, SparseRS
from brusle.evaluation import Run
from brusle.evaluation import evaluate as evaluate_plan

SHAPE, IMAGES = (3, 10, 10), 20
ATTACKS = [BruSLe(3, 40), SparseRS(3, 40)]


class Logging:
    """The small integer model, with a diary."""

    name, output, device = "logging", "logits", torch.device("cpu")

    def __init__(self, log: Path) -> None:
        self.model = integer_model(SHAPE, 5)
        self.file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        raise AssertionError("an evaluation asks with keys")

    def draw(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        os.write(self.file, "".join(f"{key}\n" for key in keys.tolist()).encode())
        return self.model.function(images)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    model, images = integer_model(SHAPE, 5), random_images(IMAGES, SHAPE)
    return images, own_labels(model, images)


def evaluate(folder: Path | None, log: Path) -> Run:
    return evaluate_plan(Logging(log), data(), ATTACKS, out=folder, batch_size=6, seed=2)


if __name__ == "__main__":
    evaluate(Path(sys.argv[1]), Path(sys.argv[2]))
