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
        values: ``(h, w)`` float32, in `LEVELS` shades. Of an image with more than `SIDE` pixels on
            a side, a value is the mean of a cell.
    """

    query: int
    values: NDArray[np.float32]

    @classmethod
    def of(cls, query: int, values: NDArray[np.float32]) -> Belief:
        """One whose values are rounded to the shades that are kept."""
        return cls(query, shades(*_ends(values), _cells(values)))

    def as_dict(self) -> dict[str, Any]:
        """For JSON; ``cells`` are bytes in base64: value = low + (high - low) cell / 63."""
        low, high = _ends(self.values)
        cells = base64.b64encode(_cells(self.values).tobytes()).decode()
        size = list(self.values.shape)
        return {"query": self.query, "size": size, "low": low, "high": high, "cells": cells}


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


def shades(low: float, high: float, cells: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Values of the ``cells`` of a belief, which `Belief.as_dict` has."""
    return (low + (high - low) * cells / (LEVELS - 1)).astype(np.float32)


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


def _ends(values: NDArray[np.float32]) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _cells(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    low, high = _ends(values)
    span = (high - low) or 1.0
    cells: NDArray[np.uint8] = ((values - low) / span * (LEVELS - 1)).round().astype(np.uint8)
    return cells
