"""What one image was answered, and what that cost.

Most victims answer a batch with a tensor. A victim that keeps books (a service behind an API, or a
victim whose answers are recorded) says more: which images have no answer and why, what was answered
from a journal without asking anybody, and how often an image was sent in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brusle.errors import VictimError
from brusle.vocabulary import Vocabulary


@dataclass(frozen=True)
class Reply:
    """The answer to one image.

    Attributes:
        scores: ``(k,)`` float64, or float32 of a victim that computes with it; none if there is an
            error.
        labels: what the scores are of, as a `Vocabulary` matches them; None if they are of the
            victim's classes in their order.
        titles: what people call these labels, where they are matched by ids.
        error: why there is no answer; about the image, so that asking again is in vain.
        lost: how often the image was sent without a usable answer.
        replayed: from a journal: nothing was sent.
        version: of the model, as the service says.
    """

    scores: NDArray[np.floating[Any]] = field(default_factory=lambda: np.zeros(0))
    labels: tuple[str, ...] | None = None
    titles: tuple[str, ...] | None = None
    error: str = ""
    lost: int = 0
    replayed: bool = False
    version: str = ""


@dataclass(frozen=True)
class Consultation:
    """What a victim that keeps books says to some images.

    Attributes:
        scores: ``(n, labels)`` float64, or float32 if all replies are; minus infinity where a label
            is not in the list, NaN in the rows that have an error.
        errors: position to the reason why there is no answer.
        replayed: ``(n,)`` bool: answered without asking anybody.
        lost: ``(n,)`` how often an image was sent without a usable answer.
    """

    scores: Tensor
    errors: dict[int, str]
    replayed: Tensor
    lost: Tensor

    @classmethod
    def of(
        cls, replies: Sequence[Reply], vocabulary: Vocabulary | None, classes: int | None = None
    ) -> Consultation:
        """All replies together.

        Args:
            replies: one for each image.
            vocabulary: gives labels their columns; None where there are only classes in order.
            classes: how many classes there are, if known; a reply of another number is refused.
        """
        rows = [_row(reply, vocabulary) for reply in replies]
        widths = {len(row) for row, reply in zip(rows, replies, strict=True) if not reply.error}
        width = classes or max(widths, default=2)
        if vocabulary is not None:
            width = max(2, len(vocabulary))  # one label alone is a list, too
        elif widths - {width}:
            raise VictimError(
                f"an image was answered with {max(widths - {width})} scores and another with "
                f"{width}: the number of classes must not change"
            )
        given = {row.dtype for row, reply in zip(rows, replies, strict=True) if not reply.error}
        kind = torch.float32 if given == {np.dtype(np.float32)} else torch.float64
        scores = torch.full((len(rows), width), -torch.inf, dtype=kind)
        for at, (row, reply) in enumerate(zip(rows, replies, strict=True)):
            scores[at, : len(row)] = torch.from_numpy(row)
            if reply.error:
                scores[at] = torch.nan
        return cls(
            scores,
            {at: reply.error for at, reply in enumerate(replies) if reply.error},
            torch.tensor([reply.replayed for reply in replies], dtype=torch.bool),
            torch.tensor([reply.lost for reply in replies], dtype=torch.int64),
        )


@runtime_checkable
class KeepsBooks(Protocol):
    """A victim that keeps books: the oracle asks it by `consult`, and leaves trouble to it."""

    def consult(self, images: Tensor, keys: Tensor, again: bool = False) -> Consultation:
        """Answer ``(n, c, h, w)`` images.

        Args:
            images: the images.
            keys: ``(n,)``: of a randomised victim, which draw it is.
            again: a second look at images that may have been answered before: ask anew.
        """


def _row(reply: Reply, vocabulary: Vocabulary | None) -> NDArray[np.floating[Any]]:
    """Scores by column; of labels that mean the same, the highest."""
    if reply.labels is None or vocabulary is None:
        return reply.scores
    titles = reply.titles or ("",) * len(reply.labels)
    columns = [vocabulary.column(*pair) for pair in zip(reply.labels, titles, strict=True)]
    row = np.full(max(columns, default=-1) + 1, -np.inf)
    with np.errstate(invalid="ignore"):  # NaN is the oracle's business
        np.maximum.at(row, columns, reply.scores)
    return row
