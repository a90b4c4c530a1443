"""What an attack wants: a loss that falls on the way there, and a test for having arrived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from brusle.errors import InputError
from brusle.outcomes import Success
from brusle.scores import ABSENT, Loss, Scores, widened


@dataclass(frozen=True)
class Goal:
    """Reach a target class (targeted) or leave the true class (untargeted).

    Losses, to be minimised:

    * ``"ce"``: cross-entropy to the target; untargeted, the log-probability of the label.
    * ``"margin"``: of softmax scores, or of confidences, best other class minus target;
      untargeted, label minus best other class. In a list of labels, an absent target counts as
      the victim's ``missing`` says, so that first the top falls until the target is listed.
    * ``"logit-margin"``: the same on logits.

    What counts as a success:

    * ``"top1"``: the target is on top, or the label is not any more.
    * ``"absent"``: the label has left the list. Its own score is the loss.
    * ``"new"``: what is on top was not in the list of the clean image. The loss is the margin
      between the best of that list and the best of all others.
    """

    targeted: bool
    loss: Loss
    success: Success = "top1"

    def __post_init__(self) -> None:
        for what, word, words in (("loss", self.loss, Loss), ("success", self.success, Success)):
            if word not in get_args(words):
                known = ", ".join(get_args(words))
                raise InputError(f"unknown {what} {word!r}: choose from {known}")
        if self.targeted and self.success != "top1":
            raise InputError(
                f"success {self.success!r} is for untargeted attacks: a target is reached when it "
                f"is on top"
            )

    def losses(
        self,
        scores: Scores,
        labels: Tensor,
        targets: Tensor | None,
        listed: Tensor | None = None,
    ) -> Tensor:
        """``(n,)`` float64 losses.

        Args:
            scores: what the victim said.
            labels: ``(n,)`` true labels.
            targets: ``(n,)`` labels to reach, if targeted.
            listed: ``(n, classes)`` bool: the list of the clean image, for the success "new".
        """
        values, meaning = scores.values, scores.meaning
        if meaning.gives == "partial":  # there always is a label that nobody has named yet
            values = widened(values, values.shape[1] + 1)
        if self.success == "top1" and self.loss == "ce":
            loss = -_of_class(meaning.log_probabilities(values), self._aim(labels, targets))
            return loss if self.targeted else -loss
        terms = {
            "ce": meaning.log_probabilities,
            "margin": meaning.shares,
            "logit-margin": meaning.logits,
        }[self.loss](values)
        if self.success == "absent":
            return _of_class(terms, labels)
        if self.success == "new":
            return -_above(terms, _old(labels, listed, terms.shape[1]))
        # an absent target may have less than nothing, but not what is on top of an empty list
        least = 0.0 if self.loss == "margin" else -torch.inf
        loss = _behind(terms, self._aim(labels, targets), least)
        return loss if self.targeted else -loss

    def reached(
        self,
        scores: Scores,
        labels: Tensor,
        targets: Tensor | None,
        listed: Tensor | None = None,
    ) -> Tensor:
        """``(n,)`` bool; arguments as in `losses`. A tie between two classes is not a success."""
        values = scores.values
        gone = _of_class(values, labels) == ABSENT
        if self.success == "absent":
            return gone
        if self.success == "new":
            return _above(values, _old(labels, listed, values.shape[1])) > 0
        behind = _behind(values, self._aim(labels, targets))
        return behind < 0 if self.targeted else (behind > 0) | gone

    def _aim(self, labels: Tensor, targets: Tensor | None) -> Tensor:
        if not self.targeted:
            return labels
        if targets is None:
            raise InputError("a targeted goal needs targets: give targets=, one per image")
        return targets


def _of_class(scores: Tensor, classes: Tensor) -> Tensor:
    return scores.gather(1, classes[:, None])[:, 0]


def _behind(scores: Tensor, classes: Tensor, least: float = -torch.inf) -> Tensor:
    """``(n,)``: by how much classes score less than the best of all others, which has a least."""
    others = scores.scatter(1, classes[:, None], -torch.inf)
    return others.amax(1).clamp_min(least) - _of_class(scores, classes)


def _above(scores: Tensor, old: Tensor) -> Tensor:
    """``(n,)``: by how much the best of the labels that are not ``old`` is above the best that is.

    Minus infinity where there is no other label.
    """
    best_new = scores.masked_fill(old, -torch.inf).amax(1)
    best_old = scores.masked_fill(~old, -torch.inf).amax(1)
    return torch.where(best_new == -torch.inf, best_new, best_new - best_old)


def _old(labels: Tensor, listed: Tensor | None, columns: int) -> Tensor:
    """``(n, columns)`` bool: what was in the list of the clean image; the label in any case."""
    if listed is None:
        raise InputError("success 'new' needs the list of the clean image")
    old = torch.zeros(len(labels), columns, dtype=torch.bool, device=labels.device)
    old[:, : listed.shape[1]] = listed
    return old.scatter(1, labels[:, None], True)
