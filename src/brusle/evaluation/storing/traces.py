"""Traces as bytes of the store, and back: compressed JSON that is checked when it is read."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt
from pydantic_core import to_json

from brusle.errors import DataError
from brusle.tracing import (
    CHANGES,
    HELD,
    LEVELS,
    POINTS,
    SIDE,
    TOP,
    Belief,
    Improvement,
    Trace,
)

_LARGEST = 2**26  # bytes of JSON; a whole photograph in other colours has a few million
_MOST = 2 * CHANGES  # improvements: each but the clean image changes a pixel, or its colour
_UNREADABLE = (ValueError, LookupError, OverflowError, zlib.error)  # pydantic's are ValueErrors
_Size = Annotated[int, Field(ge=1, le=SIDE)]
# numbers that can be drawn; no search has larger ones
_Query = Annotated[int, Field(ge=0, le=2**53)]
_Value = Annotated[float, Field(ge=-1e100, le=1e100)]
_Shade = Annotated[float, Field(ge=-1e30, le=1e30)]


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Improvement(_Kept):
    query: _Query
    search: NonNegativeInt
    loss: _Value | None
    set: list[list[NonNegativeInt]]
    unset: list[NonNegativeInt]
    top: Annotated[list[tuple[NonNegativeInt, _Value]], Field(max_length=TOP)]


class _Belief(_Kept):
    query: _Query
    size: Annotated[list[_Size], Field(min_length=2, max_length=2)]
    low: _Shade
    high: _Shade
    cells: str


class _Trace(_Kept):
    shape: Annotated[list[PositiveInt], Field(min_length=3, max_length=3)]
    meaning: Annotated[str, Field(max_length=40)]
    improvements: Annotated[list[_Improvement], Field(min_length=2, max_length=_MOST)]
    queries: Annotated[list[_Query], Field(max_length=POINTS)]
    losses: Annotated[list[_Value | None], Field(max_length=POINTS)]
    beliefs: Annotated[list[_Belief], Field(max_length=100)]


def pack(trace: Trace) -> bytes:
    """A trace as it is stored."""
    text = to_json(trace.as_dict())  # a third of the time of json.dumps
    return zlib.compress(text, 3)  # half the time of 6, for a twentieth more bytes


def unpack(packed: bytes, shape: Sequence[int]) -> Trace:
    """The trace that `pack` has packed; raises if it cannot be one of an image of ``shape``."""
    try:
        kept = _Trace.model_validate_json(_inflated(packed))
        if kept.shape != list(shape) or len(kept.queries) != len(kept.losses):
            raise ValueError("it is of another image")
        return Trace(
            (kept.shape[0], kept.shape[1], kept.shape[2]),
            kept.meaning,
            tuple(_improvements(kept.improvements, shape)),
            np.array(kept.queries, dtype=np.int64),
            np.array([math.nan if x is None else x for x in kept.losses], dtype=np.float64),
            tuple(map(_belief, kept.beliefs)),
        )
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())[:120]
        raise DataError(f"a stored trace is damaged ({reason}): take --trace anew") from error


def _inflated(packed: bytes) -> bytes:
    """At most `_LARGEST` bytes: a small file may claim to be an endless one."""
    reader = zlib.decompressobj()
    text = reader.decompress(packed, _LARGEST)
    if not reader.eof or reader.unconsumed_tail or reader.unused_data:
        raise ValueError("it is cut off or too long")
    return text


def _improvements(kept: Sequence[_Improvement], shape: Sequence[int]) -> list[Improvement]:
    """Whole masks from changes; each improvement follows from the one before."""
    channels, height, width = shape
    painted: dict[int, list[int]] = {}
    found, left = [], HELD + 2 * height * width  # the last may be a whole image
    for one in kept:
        for position in one.unset:
            painted.pop(position)
        for position, *levels in one.set:
            if len(levels) != channels or position >= height * width or max(levels) > 255:
                raise ValueError("a pixel of it is none")
            painted[position] = levels
        positions = sorted(painted)
        left -= len(positions)
        if left < 0:
            raise ValueError("it has too many pixels")
        found.append(
            Improvement(
                one.query,
                one.search,
                math.nan if one.loss is None else one.loss,
                np.array(positions, dtype=np.int64),
                np.array([painted[at] for at in positions], np.uint8).reshape(-1, channels),
                np.array([label for label, _ in one.top], dtype=np.int64),
                np.array([score for _, score in one.top], dtype=np.float64),
            )
        )
    return found


def _belief(kept: _Belief) -> Belief:
    cells: NDArray[Any] = np.frombuffer(base64.b64decode(kept.cells, validate=True), np.uint8)
    if not (math.isfinite(kept.low) and math.isfinite(kept.high)) or (cells >= LEVELS).any():
        raise ValueError("a belief of it is none")
    return Belief(kept.query, kept.low, kept.high, cells.reshape(kept.size))
