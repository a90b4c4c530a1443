"""Images and targets in the victim's own words, for victims whose labels no data set knows.

A service such as Google Cloud Vision answers with labels of its own. The label of an image is then
the one on top of the list that the victim gives to it, and its targets are others of that list. The
paper's pairs are of this kind (Car -> Window, Watch -> Jewellery); how its authors chose among the
labels of a list they do not say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from brusle.batching import default_batch_size
from brusle.data import Data, Source, as_source
from brusle.data.sets import remembering
from brusle.errors import InputError, VictimError
from brusle.evaluation.running.pairs import Candidates, draw_targets
from brusle.evaluation.storing.manifest import Manifest, ManifestImage, Targets, image_hash
from brusle.oracle import Oracle
from brusle.scores import ABSENT
from brusle.victim import Victim, traits
from brusle.victims import as_victim

Labels = tuple[tuple[int, float], ...]  # numbers and scores, the best first


@dataclass(frozen=True)
class Listed:
    """Images with labels and targets from their lists.

    Attributes:
        manifest: the choice, as `brusle.evaluate` takes it (``pairs=``).
        lists: what the victim says of each image that was chosen, by name.
        passed_over: how many images were asked for and not chosen.
    """

    manifest: Manifest
    lists: Mapping[str, Labels]
    passed_over: int


def choose_listed(
    data: Data,
    victim: Any,
    *,
    images: int | None = None,
    targets: Targets = 1,
    seed: int = 0,
    batch_size: int | None = None,
    device: str = "auto",
) -> Listed:
    """Choose images evenly over the classes of the data; labels and targets are the victim's.

    An image whose list has too few labels for its targets, or that the victim refuses, is passed
    over. What is chosen follows from the seed, the images and their lists alone.

    Args:
        data: a name, a source, a data set, or a pair of images and labels.
        victim: asked for its list of each candidate, one query each.
        images: how many; None takes all.
        targets: ``"all"`` other labels of the list, or so many random ones.
        seed: same seed, same choice.
        batch_size: most images in one call of the victim.
        device: where the victim runs.
    """
    if images is not None and images < 1:
        raise InputError(f"images is {images}: it must be at least 1")
    model = as_victim(victim, device)
    source = remembering(as_source(data, model))
    asking = _Asking(source, model, batch_size)
    order = Candidates(source, None, seed, None).in_turn(len(source))
    fewest = 2 if targets == "all" else 1 + int(targets)
    found = asking.in_turn(order, images or len(source), fewest)
    if not found:
        if asking.failure:
            raise VictimError(f"{model.name} gives no list of labels: {asking.failure}")
        raise InputError(
            f"no list of {model.name} for {source.name} has {fewest} labels: give other images"
        )
    entries = []
    for row, labels in found.items():
        image, (top, *others) = source.read([row])[0], [number for number, _ in labels]
        mine = draw_targets(image, others, targets, seed)
        entries.append(ManifestImage(source.names[row], top, image_hash(image), mine))
    names = _names(model, asking.columns)
    return Listed(
        Manifest(source.name, model.name, seed, len(names), asking.queries, tuple(entries), names),
        {source.names[row]: labels for row, labels in found.items()},
        asking.queries + asking.refused - len(found),
    )


class _Asking:
    """Asks a victim for lists.

    Attributes:
        failure: why the victim failed on the first image that it failed on; empty if on none.
        refused: how many images it failed on.
    """

    def __init__(self, source: Source, victim: Victim, batch_size: int | None) -> None:
        channels, height, width = source.read([0]).shape[1:]
        self._size = batch_size or default_batch_size((channels, height, width), victim.device)
        self._source, self.failure, self.refused = source, "", 0
        self._oracle = Oracle(victim, len(source), limit=0, batch_size=self._size)

    @property
    def queries(self) -> int:
        """Images that the victim has answered."""
        return int(self._oracle.ledger.clean.sum())

    @property
    def columns(self) -> int:
        """How many labels the victim has, or has named so far."""
        return self._oracle.classes or 0

    def in_turn(self, order: Sequence[int], images: int, fewest: int) -> dict[int, Labels]:
        """The first rows of ``order`` whose lists have so many labels."""
        waiting, found = deque(order), dict[int, Labels]()
        while waiting and len(found) < images:
            count = min(len(waiting), images - len(found), self._size)
            rows = [waiting.popleft() for _ in range(count)]
            lists = zip(rows, self._lists(rows), strict=True)
            found |= {row: labels for row, labels in lists if len(labels) >= fewest}
        return found

    def _lists(self, rows: list[int]) -> list[Labels]:
        """A list for each row; an empty one where there is no answer."""
        answers = self._oracle.ask(torch.tensor(rows), self._source.read(rows), "clean")
        self.refused += len(answers.errors)
        self.failure = self.failure or next(iter(answers.errors.values()), "")
        values = answers.values.double().cpu().nan_to_num(ABSENT, neginf=ABSENT)
        best = values.sort(dim=1, descending=True, stable=True)
        listed = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [
            tuple((n, score) for n, score in zip(*one, strict=True) if score > ABSENT)
            for one in listed
        ]


def _names(victim: Victim, columns: int) -> tuple[str, ...]:
    """What the labels are called; the classes of a victim that does not say it are numbered."""
    known = traits(victim)
    if known.vocabulary is not None:
        return known.vocabulary.names
    return tuple(map(str, known.classes or ())) or tuple(f"class {n}" for n in range(columns))
