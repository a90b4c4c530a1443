"""What the victim's scores mean to PixelBandit: the log-odds of its aim, along a straight line.

The aim is the target, or the label that is to be left. At scores z, its log-odds rise by

    z[aim] - sum of p z over the other classes

where p are their probabilities among themselves. Only a few classes are listened to: the aim, and
those that were strongest in the first answer.

A victim that names only some labels names others the next time. There, two numbers are listened to:
the score of the aim and that of the best other label, whichever that is. Of probabilities they are
logarithms, and what is absent is taken for a little less than it can have. Confidences are taken as
they are, which did better than logarithms where it was tuned, and 0 where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from brusle.problems import Problems
from brusle.rows import Rows
from brusle.scores import ABSENT, Scores, lowest

CLASSES = 10  # scores that are listened to
_SHARED = 10  # absent labels that share what the named ones leave over, as far as we know
_TINY = 1e-9  # what a score of 0 is taken for, so that it has a logarithm


@dataclass
class LogOdds(Rows):
    """Which scores are listened to, and what they say."""

    sign: float  # 1 if the aim's score is to rise, -1 if it is to fall
    aim: Tensor  # (n,)
    classes: Tensor  # (n, classes): which are listened to; the aim comes first
    heard: Tensor  # (n, classes) bool: there are so many
    floor: Tensor  # (n, 1): what a probability of 0 is taken for

    @classmethod
    def of(cls, problems: Problems) -> LogOdds:
        """Nothing was heard yet."""
        aim = problems.labels if problems.targets is None else problems.targets
        classes = torch.zeros(len(problems), CLASSES, dtype=torch.int64, device=aim.device)
        sign = -1.0 if problems.targets is None else 1.0
        return cls(sign, aim, classes, classes.bool(), classes[:, :1].double())

    def hear(self, scores: Scores, first: Tensor) -> Tensor:
        """``(n, classes)``: logits or log-probabilities of the classes that are listened to.

        Args:
            scores: of all classes.
            first: ``(n,)`` bool: these are the first of their problem.
        """
        if not scores.meaning.is_distribution:
            return self._hear_two(scores)
        values = scores.values.double()
        if bool(first.any()):
            self._choose(values, first)
        if scores.meaning.output == "probabilities":
            values = values.clamp_min(self.floor).log()
        return values.gather(1, self.classes)

    def slope(self, z: Tensor) -> Tensor:
        """``(n, classes, 1)``: by how much the aim's log-odds change with scores that were z."""
        others = z.masked_fill(~self.heard, -torch.inf)[:, 1:].softmax(1)
        slope = torch.cat([torch.ones_like(others[:, :1]), -others], 1)
        return self.sign * slope[:, :, None]

    def _hear_two(self, scores: Scores) -> Tensor:
        """The aim and the best other label, as in `hear`."""
        shares = scores.meaning.named_shares(scores.values)
        aim = shares.gather(1, self.aim[:, None])
        other = shares.scatter(1, self.aim[:, None], ABSENT).amax(1, keepdim=True)
        both = torch.cat([aim, other], 1)
        if scores.meaning.output == "confidences":
            z = both.masked_fill(both == ABSENT, 0.0)
        else:
            z = torch.where(both == ABSENT, _at_most(shares), both).clamp_min(_TINY).log()
        self.heard = torch.arange(CLASSES, device=z.device).expand_as(self.heard) < 2
        return pad(z, (0, CLASSES - 2))

    def _choose(self, scores: Tensor, first: Tensor) -> None:
        """The classes that compete with the aim, and half the smallest probability that is seen."""
        others = scores.scatter(1, self.aim[:, None], -torch.inf)
        count = min(CLASSES, scores.shape[1])
        chosen = torch.cat([self.aim[:, None], others.topk(count - 1, 1).indices], 1)
        padded = self.aim[:, None].expand(-1, CLASSES - count)
        self.classes = torch.where(first[:, None], torch.cat([chosen, padded], 1), self.classes)
        self.heard = torch.arange(CLASSES, device=first.device).expand_as(self.heard) < count
        least = scores.masked_fill(scores <= 0, torch.inf).amin(1, keepdim=True) / 2
        self.floor = torch.where(first[:, None], least, self.floor)


def _at_most(shares: Tensor) -> Tensor:
    """``(n, 1)``: what the probability of an absent label is taken for.

    It is below the lowest of the list, and no more than its part of what the list leaves over.
    """
    named = shares.clamp_min(0).sort(1, descending=True).values
    rest = 1 - named.cumsum(1)[:, -1:]  # one by one: the last digits follow no order of columns
    return torch.minimum(lowest(shares) / 2, rest / _SHARED)
