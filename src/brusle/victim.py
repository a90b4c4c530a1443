"""What a victim is: anything that answers a batch of images with scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch
from torch import Tensor

from brusle.errors import InputError, VictimError
from brusle.scores import MISSING, Gives, Meaning, Missing, Output
from brusle.trouble import PATIENCE, Patience
from brusle.vocabulary import Vocabulary


class Victim(Protocol):
    """Anything that answers a batch of images with scores.

    ``__call__`` takes ``(n, c, h, w)`` float32 in [0, 1] on ``device`` and returns
    ``(n, classes)``, of the kind that ``output`` declares.
    """

    @property
    def name(self) -> str: ...
    @property
    def output(self) -> Output: ...
    @property
    def device(self) -> torch.device: ...
    def __call__(self, images: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Traits:
    """What a victim says of itself beyond what `Victim` demands; read with `traits`.

    Attributes:
        randomised: the same image may get another answer the next time.
        gives: all scores, those of the best classes only (the others are minus infinity, see
            `brusle.scores`), or the label only (one score of 1).
        classes: names of the classes.
        vocabulary: the labels so far, if their number may grow.
        missing: what a label counts as that a victim with ``gives="partial"`` does not name; see
            `brusle.scores.Meaning`.
        shape: (channels, height, width) of its images, if fixed.
        framing: a `brusle.data.Framing` that brings photographs to that shape.
        differentiable: it has a method ``graph(images)`` that returns scores which autograd can
            follow back to the images.
        patience: how long it is waited for when it is in trouble.
        concurrency: how many calls of it may be under way at once, from different threads.
    """

    randomised: bool = False
    gives: Gives = "scores"
    classes: Sequence[str] | None = None
    vocabulary: Vocabulary | None = None
    missing: Missing = MISSING
    shape: tuple[int, int, int] | None = None
    framing: Any = None
    differentiable: bool = False
    patience: Patience = PATIENCE
    concurrency: int = 1


def traits(victim: Victim) -> Traits:
    """The traits of ``victim``; what it does not say has the usual value."""
    said = {f.name: getattr(victim, f.name) for f in fields(Traits) if hasattr(victim, f.name)}
    return Traits(**said)


def meaning_of(victim: Victim) -> Meaning:
    """What the scores of ``victim`` are."""
    said = traits(victim)
    return Meaning(victim.output, said.gives, said.classes, said.missing)


def check_shape(shape: Sequence[int], victim: Victim, what: str = "images") -> None:
    """Raise if ``victim`` says that it takes images of another shape.

    Args:
        shape: (channels, height, width).
        victim: the victim.
        what: whose shape it is, for the message.
    """
    known = traits(victim).shape
    if known is not None and tuple(shape) != tuple(known):
        have, want = (" x ".join(map(str, s)) for s in (shape, known))
        raise InputError(f"{what} are {have}, {victim.name} takes {want}")


def call_victim(victim: Victim, images: Tensor, keys: Tensor) -> Tensor:
    """Ask ``victim``; if it draws random numbers, they are a function of the ``(n,)`` ``keys``.

    A randomised victim that wants its answers to be reproducible has a method
    ``draw(images, keys)``; one without is called, and the same seed may give another result.
    """
    draw: Callable[[Tensor, Tensor], Tensor] | None = getattr(victim, "draw", None)
    return victim(images) if draw is None else draw(images, keys)


def require_scores(scores: Any, count: int, name: str) -> Tensor:
    """What the victim called ``name`` said to ``count`` images, if it can be scores."""
    if not isinstance(scores, Tensor) or scores.is_complex():
        kind = str(scores.dtype) if isinstance(scores, Tensor) else type(scores).__name__
        raise VictimError(
            f"{name} answered with {kind}: scores must be a tensor of ({count}, classes) numbers"
        )
    if scores.dim() != 2 or scores.shape[0] != count or scores.shape[1] < 2:
        raise VictimError(
            f"{name} answered {count} images with shape {tuple(scores.shape)}: scores must be "
            f"({count}, classes) with at least 2 classes"
        )
    return scores


def check_eot(victim: Victim, eot: int) -> None:
    """Raise if there is no sense in so many answers of ``victim`` to average."""
    if eot < 1:
        raise InputError(f"eot is {eot}: it must be at least 1")
    if eot > 1 and not traits(victim).randomised:
        raise InputError(
            f"eot is {eot}, but {victim.name} is not randomised and would give the same answer "
            f"{eot} times: leave it at 1, or declare the victim with randomised=True"
        )
