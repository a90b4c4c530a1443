"""Adversarial images to begin with, for attacks that start at one and walk towards the original.

For a targeted attack the user gives them: images of the target class. An untargeted attack can do
with any image that is not seen as the true class, and noise nearly always is such an image. Full
noise is tried first, then noise on fewer pixels, which keeps more of the original, in turns of
corner colours and of arbitrary ones: a model has a class that it sees in most noise of one kind,
and images of that very class need another kind.
"""

from __future__ import annotations

import torch
from torch import Tensor

from brusle import rng
from brusle.goals import Goal
from brusle.oracle import Oracle
from brusle.problems import Problems, to_levels
from brusle.rng import Purpose
from brusle.scores import Scores, widened

MOST_TRIES = 60
_SHARES = (1.0, 0.5, 0.25)


class Starts:
    """Finds and remembers the starting images of a session; each costs at least one query.

    Attributes:
        images: ``(n, c, h, w)``, on 8-bit levels.
        labels: ``(n,)`` what the victim says to them; -1 where there is none yet.
        scores: ``(n, classes)``, likewise.
        failures: problem number to the reason why there is none.

    Args:
        oracle: asks and counts.
        problems: the problems, with starting images or without.
        seed: the seed.
        scores: ``(n, classes)`` of the clean images.
    """

    def __init__(self, oracle: Oracle, problems: Problems, seed: int, scores: Tensor) -> None:
        self.given = problems.starts is not None
        starts = problems.images.clone() if problems.starts is None else problems.starts
        self.images = to_levels(starts) if self.given else starts
        self.labels = torch.full((len(problems),), -1)
        self.scores = torch.zeros_like(scores)
        self.failures: dict[int, str] = {}
        self._oracle, self._problems = oracle, problems
        self._streams = rng.streams(seed, problems.ids)
        self._goal = Goal(problems.targets is not None, "margin")

    def find(self, rows: Tensor) -> Tensor:
        """Make sure of the starts of ``rows``; return those that have one.

        A problem without a start is in ``failures``, unless its queries are spent.
        """
        missing = self._missing(rows)
        if self.given:
            self._ask(missing, self.images[missing])
        else:
            for attempt in range(MOST_TRIES):
                images = noise(self._problems[missing], self._streams[missing], attempt)
                self._ask(missing, images)
                missing = self._missing(rows)
                if not len(missing):
                    break
            for row in missing.tolist():
                self.failures[row] = (
                    f"{MOST_TRIES} noise images were all seen as the true class: give an "
                    f"adversarial starting image with starts="
                )
        return rows[self.labels[rows] >= 0]

    def _missing(self, rows: Tensor) -> Tensor:
        known = torch.tensor([row in self.failures for row in rows.tolist()], dtype=torch.bool)
        return rows[(self.labels[rows] < 0) & ~known & self._oracle.left(rows)]

    def _ask(self, rows: Tensor, images: Tensor) -> None:
        """Ask for ``images`` and remember the adversarial ones."""
        if not len(rows):
            return
        answers = self._oracle.ask(rows, images, "initial")
        answers.require_one()
        asked, scores = self._problems[rows], answers.values.cpu()
        reached = self._goal.reached(Scores(scores), asked.labels, asked.targets)
        seen = answers.labels.cpu()
        self.scores = widened(self.scores, scores.shape[1])
        self.labels[rows[reached]] = seen[reached]
        self.images[rows[reached]] = images[reached]
        self.scores[rows[reached]] = scores[reached]
        for at, row in enumerate(rows.tolist()):
            if at in answers.errors:
                self.failures[row] = answers.errors[at]
            elif self.given and not reached[at]:
                wanted = "the true class"
                if asked.targets is not None:
                    wanted = f"class {int(seen[at])} and not as the target {int(asked.targets[at])}"
                self.failures[row] = (
                    f"the starting image is seen as {wanted}: give one that is adversarial"
                )


def noise(problems: Problems, stream: Tensor, attempt: int) -> Tensor:
    """``(n, c, h, w)``: the images with a share of their pixels in random colours.

    Args:
        problems: the images.
        stream: ``(n,)`` random streams.
        attempt: which try it is, from 0.
    """
    n, (c, h, w) = len(problems), problems.shape
    numbers = rng.bits(stream, attempt, Purpose.START_NOISE, (c + 1) * h * w)
    u = rng.uniform(numbers).view(n, c + 1, h, w)
    colour = u[:, 1:]
    if attempt // len(_SHARES) % 2 == 0:
        colour = (colour < 0.5).double()
    replaced = u[:, :1] < _SHARES[attempt % len(_SHARES)]
    return torch.where(replaced, to_levels(colour), problems.images)
