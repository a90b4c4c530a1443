"""An evaluation for tests to kill: python survivor.py RUN_FOLDER LOG [WORKERS].

Its victim appends to LOG the key of every image it is asked for, which tells whose image it was,
and the number of the process that was asked.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from models import integer_model, own_labels, random_images

from brusle import Ray, rng
from brusle.attacks import BruSLe, SparseRS
from brusle.evaluation import Run
from brusle.evaluation import evaluate as evaluate_plan

SHAPE, IMAGES = (3, 10, 10), 20
ATTACKS = [BruSLe(3, 40), SparseRS(3, 40)]


class Logging:
    """The small integer model, with a diary.

    Args:
        log: the diary.
        delay: seconds before every answer.
        together: a worker waits until so many of them have been asked.
        away: it is in a worker, and not in the process that made it.
    """

    name, output, device = "logging", "logits", torch.device("cpu")

    def __init__(self, log: Path, delay: float = 0, together: int = 1, away: bool = False) -> None:
        self.log, self.delay, self.together, self.away = log, delay, together, away
        self.model = integer_model(SHAPE, 5)
        self.file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def __reduce__(self):  # another process opens the log by itself
        return type(self), (self.log, self.delay, self.together, True)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        raise AssertionError("an evaluation asks with keys")

    def draw(self, images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        me = os.getpid()
        if self.away:
            self._wait_for_others(me)
        time.sleep(self.delay)
        os.write(self.file, "".join(f"{key} {me}\n" for key in keys.tolist()).encode())
        return self.model.function(images)

    def _wait_for_others(self, me: int) -> None:
        """Until so many processes have been asked: one may take long to start."""
        self.log.with_name(f"{self.log.name}-{me}").touch()
        until = time.monotonic() + 120
        while len(list(self.log.parent.glob(f"{self.log.name}-*"))) < self.together:
            assert time.monotonic() < until, "the others do not come"
            time.sleep(0.05)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    model, images = integer_model(SHAPE, 5), random_images(IMAGES, SHAPE)
    return images, own_labels(model, images)


def evaluate(folder: Path | None, log: Path, victim: Logging | None = None, **options) -> Run:
    options = {"batch_size": 6, "seed": 2} | options
    return evaluate_plan(victim or Logging(log), data(), ATTACKS, out=folder, **options)


def owners(problems: list[int]) -> dict[int, int]:
    """Which problem each key belongs to, for the first hundred draws; -1 for no attack's."""
    ids = torch.tensor(problems).repeat_interleave(100)
    draws = torch.arange(100).repeat(len(problems))
    attacks, before = (rng.seeds(rng.streams(2, ids, r), draws).tolist() for r in (0, -2))
    return dict.fromkeys(before, -1) | dict(zip(attacks, ids.tolist(), strict=True))


def lines(log: Path) -> list[int]:
    """The keys in the log."""
    return [key for key, _ in entries(log)]


def entries(log: Path) -> list[tuple[int, int]]:
    """The keys and processes in the log."""
    text = log.read_text() if log.exists() else ""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [(int(key), int(process)) for key, process in map(str.split, whole)]


if __name__ == "__main__":
    folder, log, *workers = sys.argv[1:]
    evaluate(Path(folder), Path(log), engine=Ray(int(workers[0])) if workers else None)
