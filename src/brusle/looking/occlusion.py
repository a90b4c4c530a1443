"""Occlusion: how far the score of a class falls when a square of the image is covered.

Zeiler and Fergus, "Visualizing and Understanding Convolutional Networks", ECCV 2014. It needs
nothing but scores, and so suits every victim; what it needs are queries, which are counted here and
are no attack's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brusle import rng
from brusle.errors import InputError, VictimError
from brusle.oracle import Oracle
from brusle.problems import Problems
from brusle.scores import ABSENT, widened
from brusle.victim import Victim, traits

PATCHES = 8  # squares on each side of the image, if nothing else is said
_RESTART = -3  # that no attack has: the noise of a randomised victim is another


@dataclass(frozen=True)
class Occlusion:
    """What was found.

    Attributes:
        maps: ``(n, h, w)`` float32: score of the whole image minus that with the square covered.
        queries: images that the victim has answered.
        unanswered: images that it has not; where they are, the map is 0.
        partial: the victim names only some labels; those that it does not count as 0 here, since
            what an attack lets them count as is no confidence.
    """

    maps: Tensor
    queries: int
    unanswered: int
    partial: bool


def queries_for(images: Tensor, patches: int = PATCHES) -> int:
    """How many images `occlude` asks for."""
    _, _, height, width = images.shape
    return len(images) * (1 + len(_edges(height, patches)) * len(_edges(width, patches)))


def occlude(
    victim: Victim, problems: Problems, batch_size: int, patches: int = PATCHES
) -> Occlusion:
    """Cover squares of each image one after the other in the image's mean colour.

    Args:
        victim: the victim.
        problems: the images; their labels are the classes that are explained.
        batch_size: most images in one call of the victim.
        patches: squares on each side; as many as there are pixels if those are fewer.
    """
    if patches < 1:
        raise InputError(f"patches is {patches}: it must be at least 1")
    found = [
        _one(victim, problems[at : at + 1], batch_size, patches) for at in range(len(problems))
    ]
    return Occlusion(
        torch.stack([one.maps for one in found]),
        sum(one.queries for one in found),
        sum(one.unanswered for one in found),
        found[0].partial,
    )


def _one(victim: Victim, problem: Problems, batch_size: int, patches: int) -> Occlusion:
    """The map of a single image."""
    image, label = problem.images[0], int(problem.labels[0])
    squares = _squares(image, patches)
    asked = torch.stack([image, *(covered(image, square) for square in squares)])
    rows = torch.arange(len(asked))
    streams = rng.streams(0, problem.ids + rows, _RESTART)
    # an oracle of its own: no attack's ledger knows of these queries
    oracle = Oracle(victim, len(asked), 0, batch_size, streams=streams)
    answers = oracle.ask_once(rows, asked, "clean")
    answers.require_one()
    if 0 in answers.errors:
        raise VictimError(f"{victim.name} does not answer the image: {answers.errors[0]}")
    if traits(victim).vocabulary is None:
        problem.check_classes(answers.values.shape[1])
    shares = answers.meaning.named_shares(widened(answers.values, label + 1))[:, label].cpu()
    scores = shares.masked_fill(shares == ABSENT, 0.0)
    drops = (scores[0] - scores[1:]).nan_to_num(0.0)
    drawn = torch.zeros(image.shape[1:])
    for square, drop in zip(squares, drops.tolist(), strict=True):
        drawn[square] = drop
    queries, partial = int(oracle.ledger.total.sum()), answers.meaning.gives == "partial"
    return Occlusion(drawn, queries, len(answers.errors), partial)


def covered(image: Tensor, square: tuple[slice, slice]) -> Tensor:
    """``image`` with its mean colour in ``square``."""
    changed = image.clone()
    changed[:, square[0], square[1]] = image.mean((1, 2))[:, None, None]
    return changed


def _squares(image: Tensor, patches: int) -> list[tuple[slice, slice]]:
    """Where the squares are: they lie side by side and leave nothing out."""
    _, height, width = image.shape
    return [(rows, cols) for rows in _edges(height, patches) for cols in _edges(width, patches)]


def _edges(side: int, patches: int) -> list[slice]:
    parts = min(patches, side)
    return [slice(side * at // parts, side * (at + 1) // parts) for at in range(parts)]
