"""Starting images from the data, for the attacks that begin at an image of the target class.

Each pair gets a random image of its class that the victim classifies correctly; an untargeted one
gets an image of a random other class. That takes a few queries, which are the evaluation's own and
not the attacks'.
"""

from __future__ import annotations

import torch
from torch import Tensor

from brusle import rng
from brusle.data import Source
from brusle.errors import DataError, VictimUnavailable
from brusle.oracle import Oracle
from brusle.problems import Problems
from brusle.rng import Purpose
from brusle.victim import Victim

CANDIDATES = 10  # of each class, so many are asked


class StartingImages:
    """Images of each class out of ``pool`` that the victim classifies correctly."""

    def __init__(self, pool: Source, victim: Victim, seed: int, batch_size: int) -> None:
        self._pool, self._seed = pool, seed
        self._oracle = Oracle(victim, len(pool), limit=0, batch_size=batch_size)
        self._known: dict[int, Tensor] = {}

    @property
    def queries(self) -> int:
        """Images that the victim was asked for."""
        return int(self._oracle.ledger.clean.sum())

    def choose(self, problems: Problems) -> Tensor:
        """``(n, c, h, w)``: a start for each problem; the same for the same seed and id."""
        stream = rng.streams(self._seed, problems.ids)
        numbers = rng.bits(stream, 0, Purpose.START_IMAGE, 1)[:, 0].tolist()
        if problems.targets is None:
            classes = self._others(problems.labels, stream)
        else:
            classes = problems.targets.tolist()
        chosen = []
        for wanted, number in zip(classes, numbers, strict=True):
            mine = self._images_of(wanted)
            chosen.append(mine[number % len(mine)])
        return torch.stack(chosen)

    def _others(self, labels: Tensor, stream: Tensor) -> list[int]:
        present = sorted(set(self._pool.labels.tolist()))
        numbers = rng.bits(stream, 0, Purpose.START_CLASS, 1)[:, 0].tolist()
        others = ([c for c in present if c != label] for label in labels.tolist())
        return [mine[n % len(mine)] for mine, n in zip(others, numbers, strict=True)]

    def _images_of(self, wanted: int) -> Tensor:
        """Images of the class that the victim classifies correctly."""
        if wanted not in self._known:
            mine = (self._pool.labels == wanted).nonzero()[:, 0]
            stream = rng.streams(self._seed, torch.tensor([wanted]))
            numbers = rng.bits(stream, 0, Purpose.START_ORDER, len(mine))[0]
            rows = mine[numbers.sort(stable=True).indices[:CANDIDATES]]
            right = torch.zeros(0)
            if len(rows):
                images = self._pool.read(rows.tolist())
                answers = self._oracle.ask(rows, images, "clean")
                if answers.common_error is not None:
                    raise VictimUnavailable(
                        f"no image of class {wanted} could be classified: {answers.common_error}"
                    )
                right = images[answers.labels.cpu() == wanted]
            if not len(right):
                raise DataError(
                    f"{self._pool.name} has no image of class {wanted} that the victim classifies "
                    f"correctly, and the attack starts at one: give more images"
                )
            self._known[wanted] = right
        return self._known[wanted]
