"""What the victim said to one batch of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from brusle.errors import VictimUnavailable
from brusle.scores import ABSENT, Scores, top_labels, widened

SEVERAL = 8  # images that fail together are the victim's trouble; fewer may all be bad ones


@dataclass(frozen=True)
class Answers(Scores):
    """What the victim said to one batch: its scores, NaN in the rows that have an error.

    Attributes:
        errors: position in the batch to the reason why it has no scores.
        gradient: ``(n, c, h, w)`` of the loss that was asked for, if one was.
    """

    errors: dict[int, str] = field(default_factory=dict)
    gradient: Tensor | None = None

    @property
    def labels(self) -> Tensor:
        """``(n,)`` predicted labels; -1 in the rows that have an error or no label."""
        labels = top_labels(self.values)
        labels[list(self.errors)] = -1
        return labels

    def require_one(self) -> None:
        """Raise if none of `SEVERAL` images or more has an answer: that says nothing of them."""
        if len(self.values) >= SEVERAL and self.common_error is not None:
            raise VictimUnavailable(
                f"none of {len(self.values)} images was answered: {self.common_error}"
            )

    @property
    def common_error(self) -> str | None:
        """Why no image at all has an answer; None if one has."""
        failed = len(self.errors) == len(self.values) > 0
        return next(iter(self.errors.values())) if failed else None

    @classmethod
    def mean(cls, draws: Sequence[Answers]) -> Answers:
        """The average of several answers to the same images."""
        first = draws[0]
        slopes = [draw.gradient for draw in draws if draw.gradient is not None]
        errors = {at: reason for draw in draws for at, reason in draw.errors.items()}
        gradient = sum(slopes[1:], slopes[0]) / len(draws) if slopes else None
        columns = max(draw.values.shape[1] for draw in draws)
        said = [widened(draw.values, columns) for draw in draws]
        partial = first.meaning.gives == "partial"
        terms = [first.meaning.filled(values) for values in said] if partial else said
        mean = sum(terms[1:], terms[0]) / len(draws)
        # a label that no draw has named is absent
        never = torch.stack([values == ABSENT for values in said]).all(0)
        return cls(mean.masked_fill(never, ABSENT), first.meaning, errors, gradient)

    @classmethod
    def join(cls, parts: Sequence[Answers]) -> Answers:
        """Answers to consecutive batches; where all of a batch failed, classes are unknown."""
        if len(parts) == 1:
            return parts[0]
        classes = max(part.values.shape[1] for part in parts)
        values: list[Tensor] = []
        slopes = [part.gradient for part in parts if part.gradient is not None]
        errors: dict[int, str] = {}
        start = 0
        for part in parts:
            count, known = part.values.shape
            unknown = part.values.new_full((count, classes), torch.nan)
            values.append(widened(part.values, classes) if known else unknown)
            errors |= {start + at: reason for at, reason in part.errors.items()}
            start += count
        gradient = torch.cat(slopes) if slopes else None
        return cls(torch.cat(values), parts[0].meaning, errors, gradient)
