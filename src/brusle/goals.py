"""What an attack wants: a loss that falls on the way there, and a test for having arrived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brusle.errors import InputError

Output = Literal["logits", "probabilities"]
Loss = Literal["ce", "margin", "logit-margin"]
LOSSES: tuple[Loss, ...] = ("ce", "margin", "logit-margin")


@dataclass(frozen=True)
class Goal:
    """Reach a target class (targeted) or leave the true class (untargeted).

    Losses, to be minimised:

    * ``"ce"``: cross-entropy to the target; untargeted, the log-probability of the label.
    * ``"margin"``: of softmax scores, best other class minus target; untargeted, label minus
      best other class.
    * ``"logit-margin"``: the same on logits.

    Losses are computed in float64: float32 softmax scores of a confident model are exactly 0
    or 1, and a search that only sees differences would see none.
    """

    targeted: bool
    loss: Loss
    output: Output = "logits"

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise InputError(f"unknown loss {self.loss!r}: choose from {', '.join(LOSSES)}")

    def losses(self, scores: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        """``(n,)`` float64 losses of ``(n, classes)`` scores."""
        scores = scores.double()
        if self.output == "probabilities":
            log_p = scores.clamp_min(torch.finfo(torch.float64).tiny).log()
        else:
            log_p = scores.log_softmax(1)
        aim = self._aim(labels, targets)
        if self.loss == "ce":
            loss = -_pick(log_p, aim)
        elif self.loss == "margin":
            loss = _best_other(log_p.exp(), aim) - _pick(log_p.exp(), aim)
        else:
            logits = log_p if self.output == "probabilities" else scores
            loss = _best_other(logits, aim) - _pick(logits, aim)
        return loss if self.targeted else -loss

    def reached(self, scores: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        """``(n,)`` bool. A tie between two classes is not a success."""
        aim = self._aim(labels, targets)
        ahead = _pick(scores, aim) - _best_other(scores, aim)
        return ahead > 0 if self.targeted else ahead < 0

    def _aim(self, labels: Tensor, targets: Tensor | None) -> Tensor:
        if not self.targeted:
            return labels
        if targets is None:
            raise InputError("a targeted goal needs targets: give targets=, one per image")
        return targets


def _pick(scores: Tensor, classes: Tensor) -> Tensor:
    return scores.gather(1, classes[:, None])[:, 0]


def _best_other(scores: Tensor, classes: Tensor) -> Tensor:
    others = scores.scatter(1, classes[:, None], -torch.inf)
    return others.amax(1)
