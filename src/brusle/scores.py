"""What a victim says: a number for each class, and what these numbers mean.

The meaning travels with the numbers, so that whoever reads them (a goal, an attack, a report) need
not ask the victim again, and so that a loss which suits one kind of answer is chosen in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

Output = Literal["logits", "probabilities", "confidences"]
Gives = Literal["scores", "partial", "label"]
Loss = Literal["ce", "margin", "logit-margin"]
LossOption = Literal["auto", "ce", "margin", "logit-margin"]


@dataclass(frozen=True)
class Meaning:
    """What the numbers of a victim are.

    Attributes:
        output: logits, or probabilities.
        gives: all scores, those of the best classes only (the rest are 0), or the label only (one
            score of 1).
        classes: names of the classes, if they have any.
    """

    output: Output = "logits"
    gives: Gives = "scores"
    classes: Sequence[str] | None = None

    def loss(self, option: LossOption, usual: Loss) -> Loss:
        """The loss that an attack follows on such scores.

        Args:
            option: what the user wants; ``"auto"`` leaves it to us.
            usual: what the attack's authors take.
        """
        return usual if option == "auto" else option

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """``(n, classes)`` float64: the scores as logarithms of probabilities.

        In float32, softmax scores of a confident model are exactly 0 or 1, and a search that only
        sees differences would see none.
        """
        scores = scores.double()
        if self.output == "probabilities":
            return scores.clamp_min(torch.finfo(torch.float64).tiny).log()
        return scores.log_softmax(1)

    def logits(self, scores: Tensor) -> Tensor:
        """``(n, classes)`` float64: the scores as logits, up to a constant of each row."""
        if self.output == "probabilities":
            return self.log_probabilities(scores)
        return scores.double()


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
        label = one_hot(self.values.argmax(1), self.values.shape[1]).to(self.values.dtype)
        return Scores(label.masked_fill(self.values.isnan(), torch.nan), self.meaning)
