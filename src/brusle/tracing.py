"""What a search found on its way: improvements, losses, and what it had learned about each pixel.

A `Trace` is a few kilobytes: every candidate that became the best so far, as the pixels that differ
from the original; the loss of each query; and now and then a small map of the search's belief. The
last improvement is the image that was returned. `brusle.tracer` makes them.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

T = TypeVar("T")
TOP = 10  # labels that are kept of an answer
POINTS = 512  # losses that are kept of a search
CHANGES = 2**14  # pixels that are kept of a trace, counting only what changes
HELD = 2**18  # pixels of all its improvements, counting those that stay as they were
SIDE = 32  # of a map of beliefs, in cells
LEVELS = 64  # of its shades


@dataclass(frozen=True)
class Improvement:
    """A candidate that was the best so far.

    Attributes:
        query: queries of the attack that were booked to the problem by then; 0 is the clean image.
        search: which search of the attack found it, from 0: restarts and the like run several.
        loss: its loss, or its number of changed pixels if the attack shrinks; NaN if unknown.
        positions: ``(k,)`` int64, all pixels that differ from the original, as
            ``row * width + column``, rising.
        levels: ``(k, c)`` uint8, their colours.
        labels: ``(t,)`` int64, the best labels, the best first.
        scores: ``(t,)`` float64, their probabilities or confidences.
    """

    query: int
    search: int
    loss: float
    positions: NDArray[np.int64]
    levels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    scores: NDArray[np.float64]

    @property
    def top(self) -> list[tuple[int, float]]:
        """The best labels with their scores."""
        return list(zip(self.labels.tolist(), self.scores.tolist(), strict=True))


@dataclass(frozen=True)
class Belief:
    """What a search had learned about each pixel.

    Attributes:
        query: queries that were booked by then.
        low: the smallest value.
        high: the largest one.
        cells: ``(h, w)`` uint8, which of `LEVELS` shades from ``low`` to ``high``. Of an image with
            more than `SIDE` pixels on a side, a cell is the mean of several.
    """

    query: int
    low: float
    high: float
    cells: NDArray[np.uint8]

    @classmethod
    def of(cls, query: int, values: NDArray[np.float32]) -> Belief:
        """One whose values are rounded to the shades that are kept."""
        low, high = float(values.min()), float(values.max())
        span = (high - low) or 1.0
        return cls(
            query, low, high, ((values - low) * ((LEVELS - 1) / span) + 0.5).astype(np.uint8)
        )

    @property
    def values(self) -> NDArray[np.float32]:
        """``(h, w)``: the values of the shades."""
        return (self.low + (self.high - self.low) * self.cells / (LEVELS - 1)).astype(np.float32)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; ``cells`` are bytes in base64: value = low + (high - low) cell / 63."""
        return {
            "query": self.query,
            "size": list(self.cells.shape),
            "low": self.low,
            "high": self.high,
            "cells": base64.b64encode(self.cells.tobytes()).decode(),
        }


@dataclass(frozen=True)
class Trace:
    """One attack on one image.

    Attributes:
        shape: channels, height and width of the image.
        meaning: what beliefs are (`brusle.search.Behaviour.believes`); empty if there are none.
        improvements: the first is the clean image, the last is the image that was returned. If
            they change more than `CHANGES` pixels in all, some in between are left out.
        queries: ``(m,)`` int64, numbers of queries.
        losses: ``(m,)`` float64, to five digits, their losses; NaN where there is none. Of more
            than `POINTS`, some are left out, evenly.
        beliefs: after 5, 20, 50, 100, 200, 500, ... queries, and at the end.
    """

    shape: tuple[int, int, int]
    meaning: str
    improvements: tuple[Improvement, ...]
    queries: NDArray[np.int64]
    losses: NDArray[np.float64]
    beliefs: tuple[Belief, ...]

    def image(self, number: int, original: Tensor) -> Tensor:
        """``(c, h, w)``: the improvement ``number`` of the image ``original``."""
        found = self.improvements[number]
        painted = original.flatten(1).clone()
        painted[:, torch.from_numpy(found.positions)] = torch.from_numpy(found.levels).T / 255
        return painted.view_as(original)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; improvements are as in `steps`."""
        return {
            "shape": list(self.shape),
            "meaning": self.meaning,
            "improvements": [*steps(self.improvements)],
            "queries": self.queries.tolist(),
            "losses": [number(loss) for loss in self.losses.tolist()],
            "beliefs": [belief.as_dict() for belief in self.beliefs],
        }


def steps(found: Sequence[Improvement]) -> Iterator[dict[str, Any]]:
    """Improvements for JSON, each as what it changes in the one before, the first in the original.

    ``set`` has the pixels that are not as they were, as ``[position, level, ...]`` with a level for
    each channel, and ``unset`` the positions that are as in the original again.
    """
    for one, (new, gone) in zip(found, _deltas(found), strict=True):
        yield {
            "query": one.query,
            "search": one.search,
            "loss": number(one.loss),
            "set": new,
            "unset": gone,
            "top": [list(pair) for pair in one.top],
        }


def number(value: float) -> float | None:
    """For JSON, which knows finite numbers only."""
    return value if math.isfinite(value) else None


def halved(found: list[T]) -> list[T]:
    """Every other of them, with the last."""
    return found[::-2][::-1]


def thinned(found: list[Improvement]) -> list[Improvement]:
    """So many that they change few enough pixels; the first and the last stay."""
    while len(found) > 2 and sum(len(one.positions) for one in found) > CHANGES:
        if sum(len(new) for new, _ in _deltas(found)) <= CHANGES:
            break
        found = [found[0], *halved(found[1:])]
    return found


def _deltas(found: Iterable[Improvement]) -> Iterator[tuple[list[list[int]], list[int]]]:
    """Of each improvement, the pixels that are new or of another colour, and those that are gone.

    The former are positions with their levels.
    """
    before: dict[int, list[int]] = {}
    for one in found:
        now = dict(zip(one.positions.tolist(), one.levels.tolist(), strict=True))
        new = [[at, *levels] for at, levels in now.items() if before.get(at) != levels]
        yield new, [at for at in before if at not in now]
        before = now
