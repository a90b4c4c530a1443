"""What a victim says: a number for each class, and what these numbers mean.

The meaning travels with the numbers, so that whoever reads them (a goal, an attack, a report) need
not ask the victim again, and so that a loss which suits one kind of answer is chosen in one place.

A victim may name only some of its labels, the best ones. The others are absent, which is minus
infinity in the scores: never on top, and told from a label that is named with a score of 0. What an
absent label counts as in a loss is `Meaning.missing`. Nothing here may depend on the order or the
number of the labels that happen to have a column, since both come by chance (`brusle.vocabulary`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

Output = Literal["logits", "probabilities", "confidences"]
Gives = Literal["scores", "partial", "label"]
Loss = Literal["ce", "margin", "logit-margin"]
LossOption = Literal["auto", "ce", "margin", "logit-margin"]
Missing = float | Literal["floor"]
ABSENT = -torch.inf  # the score of a label that is not in the list
# What an absent label counts as, if nothing else is said. Shares are from 0 to 1 and differ by 1 at
# most: a target in the list, however low, is nearer than one that is not, whatever is on top.
MISSING = -1.0


@dataclass(frozen=True)
class Meaning:
    """What the numbers of a victim are.

    Attributes:
        output: logits; probabilities; or confidences, which are numbers of each label by itself
            and need not sum to one.
        gives: all scores, those of the best classes only (the others are absent), or the label
            only (one score of 1).
        classes: names of the classes, if they have any.
        missing: what an absent label counts as in a loss, as a probability or confidence: a
            number, or ``"floor"``, the lowest in the same answer, which is the most that it can
            have. The default lets a label that is listed always be ahead of one that is not, as
            long as confidences are from 0 to 1; for percentages, give -100.
    """

    output: Output = "logits"
    gives: Gives = "scores"
    classes: Sequence[str] | None = None
    missing: Missing = MISSING

    @property
    def is_distribution(self) -> bool:
        """Every class has its score, and these make probabilities."""
        return self.gives != "partial" and self.output != "confidences"

    def loss(self, option: LossOption, usual: Loss) -> Loss:
        """The loss that an attack follows on such scores.

        Where a victim names only some labels, or its numbers are no probabilities, that is the
        margin (section 4.4 of the paper): the cross-entropy to an absent target is flat, while
        the margin still says how far the top has fallen (measured in docs/partial.md).

        Args:
            option: what the user wants; ``"auto"`` leaves it to us.
            usual: what the attack's authors take.
        """
        if option != "auto":
            return option
        return usual if self.is_distribution else "margin"

    def filled(self, shares: Tensor) -> Tensor:
        """``(n, classes)`` float64 probabilities or confidences, also of absent labels."""
        shares = shares.double()
        if self.gives != "partial":
            return shares
        if self.missing != "floor":
            return shares.masked_fill(shares == ABSENT, self.missing)
        floor = lowest(shares)
        floor = floor.masked_fill(floor == torch.inf, 0.0)  # nothing was named at all
        return torch.where(shares == ABSENT, floor, shares)

    def named_shares(self, scores: Tensor) -> Tensor:
        """``(n, classes)`` float64 probabilities or confidences; absent labels stay so."""
        scores = scores.double()
        if self.output != "logits":
            return scores
        return scores.softmax(1).masked_fill(scores == ABSENT, ABSENT)

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """``(n, classes)`` float64: the scores as logarithms of probabilities, or of confidences.

        In float32, softmax scores of a confident model are exactly 0 or 1, and a search that only
        sees differences would see none.
        """
        if self.output == "logits" and self.gives != "partial":
            return scores.double().log_softmax(1)
        shares = self.filled(self.named_shares(scores))
        return shares.clamp_min(torch.finfo(torch.float64).tiny).log()

    def shares(self, scores: Tensor) -> Tensor:
        """``(n, classes)`` float64: probabilities, or confidences as they are."""
        if self.is_distribution:
            return self.log_probabilities(scores).exp()
        return self.filled(self.named_shares(scores))

    def logits(self, scores: Tensor) -> Tensor:
        """``(n, classes)`` float64: the scores as logits, up to a constant of each row.

        Confidences are taken as they are.
        """
        if self.output == "logits" and self.gives != "partial":
            return scores.double()
        return (
            self.shares(scores) if self.output == "confidences" else self.log_probabilities(scores)
        )


@dataclass(frozen=True)
class Scores:
    """Scores of some images, with their meaning.

    Attributes:
        values: ``(n, classes)`` as the victim gave them; NaN in the rows that it failed on.
        meaning: what they are.
    """

    values: Tensor
    meaning: Meaning = Meaning()

    @property
    def labels_only(self) -> Scores:
        """Scores that say no more than the label: 1 for it and 0 for all others."""
        top = top_labels(self.values)
        label = one_hot(top.clamp_min(0), self.values.shape[1]).to(self.values.dtype)
        label[top < 0] = 0
        return Scores(label.masked_fill(self.values.isnan(), torch.nan), self.meaning)


def top_labels(values: Tensor) -> Tensor:
    """``(n,)``: the class on top; -1 where no label was named."""
    if not values.shape[1]:
        return torch.full((len(values),), -1, device=values.device)
    top = values.max(1)
    return top.indices.masked_fill(top.values == ABSENT, -1)


def lowest(values: Tensor) -> Tensor:
    """``(n, 1)``: the lowest score that was named; infinity where none was."""
    return values.masked_fill(values == ABSENT, torch.inf).amin(1, keepdim=True)


def widened(values: Tensor, columns: int) -> Tensor:
    """``(n, columns)`` scores: labels that were not known yet are absent.

    An open vocabulary (`brusle.vocabulary`) grows while an attack runs.
    """
    more = columns - values.shape[1]
    if more <= 0:
        return values
    failed = values.isnan().any(1, keepdim=True)
    return pad(values, (0, more), value=ABSENT).masked_fill(failed, torch.nan)
