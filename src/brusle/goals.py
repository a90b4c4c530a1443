"""What an attack wants: a loss that falls on the way there, and a test for having arrived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from brusle.errors import InputError
from brusle.scores import Loss, Scores


@dataclass(frozen=True)
class Goal:
    """Reach a target class (targeted) or leave the true class (untargeted).

    Losses, to be minimised:

    * ``"ce"``: cross-entropy to the target; untargeted, the log-probability of the label.
    * ``"margin"``: of softmax scores, best other class minus target; untargeted, label minus
      best other class.
    * ``"logit-margin"``: the same on logits.
    """

    targeted: bool
    loss: Loss

    def __post_init__(self) -> None:
        if self.loss not in get_args(Loss):
            known = ", ".join(get_args(Loss))
            raise InputError(f"unknown loss {self.loss!r}: choose from {known}")

    def losses(self, scores: Scores, labels: Tensor, targets: Tensor | None) -> Tensor:
        """``(n,)`` float64 losses."""
        values, meaning = scores.values, scores.meaning
        aim = self._aim(labels, targets)
        if self.loss == "ce":
            loss = -_of_class(meaning.log_probabilities(values), aim)
        elif self.loss == "margin":
            loss = _behind(meaning.log_probabilities(values).exp(), aim)
        else:
            loss = _behind(meaning.logits(values), aim)
        return loss if self.targeted else -loss

    def reached(self, scores: Scores, labels: Tensor, targets: Tensor | None) -> Tensor:
        """``(n,)`` bool. A tie between two classes is not a success."""
        behind = _behind(scores.values, self._aim(labels, targets))
        return behind < 0 if self.targeted else behind > 0

    def _aim(self, labels: Tensor, targets: Tensor | None) -> Tensor:
        if not self.targeted:
            return labels
        if targets is None:
            raise InputError("a targeted goal needs targets: give targets=, one per image")
        return targets


def _of_class(scores: Tensor, classes: Tensor) -> Tensor:
    return scores.gather(1, classes[:, None])[:, 0]


def _behind(scores: Tensor, classes: Tensor) -> Tensor:
    """``(n,)``: by how much classes score less than the best of all others."""
    others = scores.scatter(1, classes[:, None], -torch.inf)
    return others.amax(1) - _of_class(scores, classes)
