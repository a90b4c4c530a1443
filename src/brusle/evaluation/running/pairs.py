"""Which images are attacked, and which classes each has to reach: choices for a `Manifest`.

The paper takes images that the victim classifies correctly, evenly over the classes, each with all
other classes (CIFAR-10, STL-10) or a few random ones (ImageNet) as targets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from brusle import rng
from brusle.batching import default_batch_size
from brusle.data import Data, Source, as_source
from brusle.data.sets import remembering
from brusle.errors import InputError, VictimError
from brusle.evaluation.storing.manifest import (
    Manifest,
    ManifestImage,
    Targets,
    image_hash,
    in_parts,
)
from brusle.oracle import Oracle
from brusle.rng import Purpose
from brusle.victim import Victim, traits
from brusle.victims import as_victim


def choose(
    data: Data,
    victim: Any = None,
    *,
    images: int | None = None,
    targets: Targets = 1,
    seed: int = 0,
    batch_size: int | None = None,
    device: str = "auto",
    with_starts: bool = False,
) -> Manifest:
    """Choose images evenly over the classes, and targets for each.

    Classes take turns in a random order, and each gives its next image in a random order; with a
    victim, its next image that the victim classifies correctly. Where a class has no more, the
    others go on, so the numbers per class differ by at most one as long as no class runs out.

    Args:
        data: a name, a source, a data set, or a pair of images and labels.
        victim: asked for the label of each candidate, one query each; None takes all images.
        images: how many; None takes all.
        targets: ``"all"`` other classes, or so many random ones for each image.
        seed: same seed, same choice.
        batch_size: most images in one call of the victim.
        device: where the victim runs.
        with_starts: targets are only classes with an image that the victim classifies correctly,
            for attacks that start at one; asking for them costs queries.
    """
    if images is not None and images < 1:
        raise InputError(f"images is {images}: it must be at least 1")
    model = None if victim is None else as_victim(victim, device)
    source = remembering(as_source(data, model))
    candidates = Candidates(source, model, seed, batch_size)
    rows = candidates.in_turn(images or len(source))
    if candidates.failure and not candidates.queries:
        raise VictimError(f"no image of {source.name} could be classified: {candidates.failure}")
    if not rows:
        raise InputError(f"the victim classifies no image of {source.name} correctly")
    classes = number_of_classes(source, model)
    reachable: Sequence[int] = range(classes)
    if with_starts:
        # classes take turns, so that so many images are one of each class that has one
        one_each = candidates.in_turn(len(set(source.labels.tolist())))
        reachable = sorted({int(source.labels[row]) for row in one_each})
    entries = [e for part, _ in drawn(source, rows, targets, seed, reachable) for e in part]
    name = None if model is None else model.name
    return Manifest(source.name, name, seed, classes, candidates.queries, tuple(entries))


def drawn(
    source: Source, rows: Sequence[int], targets: Targets, seed: int, classes: Sequence[int]
) -> Iterator[tuple[list[ManifestImage], Tensor]]:
    """Entries of a manifest with random targets, and their images, some at a time.

    Args:
        source: where the images are.
        rows: which of them.
        targets: as in `choose`; 0 is none.
        seed: same seed, same targets.
        classes: what targets are drawn from.
    """
    for part in in_parts(rows, source.read(rows[:1]).nbytes):
        images = source.read(part)
        entries = []
        for row, image in zip(part, images, strict=True):
            label = int(source.labels[row])
            others = [c for c in classes if c != label]
            mine = draw_targets(image, others, targets, seed)
            entries.append(ManifestImage(source.names[row], label, image_hash(image), mine))
        yield entries, images


def number_of_classes(source: Source, victim: Victim | None = None) -> int:
    """As the victim says, or the data; else the largest label decides."""
    named = traits(victim).classes if victim is not None else None
    return len(named or source.classes) or int(source.labels.max()) + 1


def draw_targets(
    image: Tensor, others: Sequence[int], targets: Targets, seed: int
) -> tuple[int, ...]:
    """Some of the other classes, a function of these, seed and image alone."""
    if targets == 0:
        return ()
    if targets == "all":
        return tuple(others)
    if not isinstance(targets, int) or not 1 <= targets <= len(others):
        raise InputError(
            f"targets is {targets!r}: give 'all' or a number from 1 to {len(others)}, the other "
            f"classes that an image has"
        )
    order = shuffled(
        len(others), seed, rng.content_id(image.numpy().tobytes()), Purpose.TARGET_ORDER
    )
    return tuple(others[at] for at in order[:targets])


class Candidates:
    """Images that may be chosen, and the victim that is asked for them.

    Attributes:
        failure: why the victim failed on the first image that it failed on; empty if on none.
    """

    def __init__(
        self, source: Source, victim: Victim | None, seed: int, batch_size: int | None
    ) -> None:
        self._source, self._seed, self.failure = source, seed, ""
        self._oracle: Oracle | None = None
        if victim is not None:
            channels, height, width = source.read([0]).shape[1:]
            size = batch_size or default_batch_size((channels, height, width), victim.device)
            self._oracle = Oracle(victim, len(source), limit=0, batch_size=size)

    @property
    def queries(self) -> int:
        """Images that the victim was asked for."""
        return 0 if self._oracle is None else int(self._oracle.ledger.clean.sum())

    def in_turn(self, images: int) -> list[int]:
        """Rows as `choose` says."""
        labels, seed = self._source.labels.tolist(), self._seed
        queues: dict[int, deque[int]] = {}
        for row in shuffled(len(labels), seed, 0, Purpose.IMAGE_ORDER):
            queues.setdefault(labels[row], deque()).append(row)
        present = sorted(queues)
        turn = [present[at] for at in shuffled(len(present), seed, 0, Purpose.CLASS_ORDER)]
        chosen: list[int] = []
        have = dict.fromkeys(turn, 0)
        while len(chosen) < images and any(queues.values()):
            fewest = min(have[c] for c in turn if queues[c])
            now = [c for c in turn if queues[c] and have[c] == fewest][: images - len(chosen)]
            rows = [queues[c].popleft() for c in now]
            for c, row, right in zip(now, rows, self._right(rows), strict=True):
                if right:
                    chosen.append(row)
                    have[c] += 1
        return chosen

    def _right(self, rows: list[int]) -> list[bool]:
        """Which of the images the victim classifies correctly; all, if there is none."""
        if self._oracle is None:
            return [True] * len(rows)
        answers = self._oracle.ask(torch.tensor(rows), self._source.read(rows), "clean")
        self.failure = self.failure or next(iter(answers.errors.values()), "")
        right: list[bool] = (answers.labels.cpu() == self._source.labels[rows]).tolist()
        return right


def shuffled(count: int, seed: int, identity: int, purpose: Purpose) -> list[int]:
    """A random order of ``count`` things."""
    stream = rng.streams(seed, torch.tensor([identity]))
    order: list[int] = rng.bits(stream, 0, purpose, count)[0].sort(stable=True).indices.tolist()
    return order
