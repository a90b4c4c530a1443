"""What is attacked: the images and targets of an evaluation, read a part at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brusle.data import Dataset, Source, risk, source
from brusle.errors import InputError
from brusle.evaluation.storing.manifest import (
    Entry,
    Manifest,
    Originals,
    Targets,
    in_parts,
    number_of_classes,
)
from brusle.evaluation.storing.manifest import manifest as make_manifest
from brusle.evaluation.storing.store import GoalName
from brusle.names import require_harmless
from brusle.problems import Problems
from brusle.victim import Victim, check_shape, traits

Data = str | Source | Dataset | tuple[Any, Any]
GOALS: tuple[GoalName, ...] = ("untargeted", "targeted")


@dataclass(frozen=True)
class Asked:
    """The problems of one goal, each once, without their images.

    An image that the data hold twice is the same problem twice; the first of them stands for both.

    Attributes:
        images: ``(n,)`` which image of the manifest.
        targets: ``(n,)`` labels to reach; None if untargeted.
        ids: ``(n,)`` as in `Problems`.
    """

    images: Tensor
    targets: Tensor | None
    ids: Tensor

    def __len__(self) -> int:
        return len(self.ids)


class Workload:
    """The problems of an evaluation.

    Attributes:
        manifest: the images and their targets.
        place: where the images are.
        originals: the images by name.
        shape: of an image.
    """

    def __init__(self, manifest: Manifest, place: Source) -> None:
        """Read every image once, to see that it is the right one and that it can be attacked."""
        self.manifest, self.place = manifest, place
        self.originals = Originals(place, manifest.known)
        first = self.originals.take([manifest.entries[0].name])
        self.shape = (first.shape[1], first.shape[2], first.shape[3])
        ids: dict[GoalName, list[Tensor]] = {goal: [] for goal in GOALS}
        for part in in_parts(manifest.entries, first.nbytes):
            images = self.originals.take([entry.name for entry in part])
            for goal in GOALS:
                rows, labels, targets = _aims(part, goal)
                if len(rows):
                    ids[goal].append(Problems.make(images[rows], labels, targets).ids)
        self._asked: dict[GoalName, Asked] = {}
        for goal in GOALS:
            rows, _, targets = _aims(manifest.entries, goal)
            if len(rows):
                self._asked[goal] = _distinct(Asked(rows, targets, torch.cat(ids[goal])))

    @classmethod
    def of(
        cls,
        data: Data,
        pairs: str | Path | Manifest | None,
        targets: Targets,
        limit: int | None,
        seed: int,
        victim: Victim,
    ) -> Workload:
        """As `brusle.evaluate` describes these; no targets if ``targets`` is 0."""
        if pairs is not None:
            known = pairs if isinstance(pairs, Manifest) else Manifest.read(pairs)
            if known is not pairs and isinstance(data, str) and data != known.data:
                require_harmless(f"the manifest {pairs}", "data", known.data, risk(known.data))
            return cls(known, as_source(known.data if isinstance(data, str) else data, victim))
        place = as_source(data, victim)
        classes = number_of_classes(place, victim)
        if targets and classes < 2:
            raise InputError("a targeted evaluation needs at least 2 classes in the data")
        rows = chosen_rows(place, limit)
        return cls(make_manifest(place, rows, targets, seed, classes), place)

    def asked(self, goal: GoalName) -> Asked:
        """The problems of a goal."""
        if goal not in self._asked:
            raise InputError("the manifest has no targets: make one with --targets")
        return self._asked[goal]

    def names(self, goal: GoalName, which: Sequence[int]) -> list[str]:
        """What the images of some problems are called."""
        images = self.asked(goal).images[list(which)].tolist()
        return [self.manifest.entries[at].name for at in images]

    def problems(self, goal: GoalName, which: Sequence[int]) -> Problems:
        """Some problems of a goal, with their images."""
        asked, rows = self.asked(goal), list(which)
        labels = [self.manifest.entries[at].label for at in asked.images[rows].tolist()]
        return Problems.make(
            self.originals.take(self.names(goal, rows)),
            labels,
            None if asked.targets is None else asked.targets[rows],
            asked.ids[rows],
        )


def _aims(entries: Sequence[Entry], goal: GoalName) -> tuple[Tensor, Tensor, Tensor | None]:
    """Number of the image, label and target of every problem."""
    if goal == "untargeted":
        labels = torch.tensor([entry.label for entry in entries])
        return torch.arange(len(entries)), labels, None
    pairs = [(at, e.label, target) for at, e in enumerate(entries) for target in e.targets]
    rows, labels, targets = torch.tensor(pairs, dtype=torch.int64).view(-1, 3).unbind(1)
    return rows, labels, targets


def _distinct(asked: Asked) -> Asked:
    """Every problem where it stands first."""
    first: dict[int, int] = {}
    for row, number in enumerate(asked.ids.tolist()):
        first.setdefault(number, row)
    rows = list(first.values())
    targets = None if asked.targets is None else asked.targets[rows]
    return Asked(asked.images[rows], targets, asked.ids[rows])


def as_source(data: Data, victim: Any = None) -> Source:
    """What a user gives as ``data``; photographs framed as the victim wants."""
    if isinstance(data, str):
        return source(data, like=victim)
    if isinstance(data, Source):
        return data
    if not isinstance(data, Dataset):
        images, labels = (torch.as_tensor(part) for part in data)
        names = tuple(f"{i:05d}" for i in range(len(labels)))
        data = Dataset("arrays", images, labels, (), names)
    if len(set(data.names)) < len(data):
        raise InputError(f"two images of {data.name} have the same name: give each its own")
    # ids would be hashes of all images
    whole = Problems.make(data.images, data.labels, ids=range(len(data)))
    return Source(
        data.name, whole.labels, data.classes, data.names, lambda rows: whole.images[list(rows)]
    )


def chosen_rows(data: Source, limit: int | None) -> Sequence[int]:
    """At most ``limit`` images, evenly over the classes; None is all, in their order."""
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}: it must be at least 1")
    return range(len(data)) if limit is None else data.order()[:limit]


def check_fit(data: Source, shape: tuple[int, ...], victim: Victim) -> None:
    """Raise if the victim cannot mean what the data means: other shape, or other classes."""
    known = traits(victim)
    check_shape(shape, victim, f"images of {data.name}")
    if not known.classes:
        return
    top = int(data.labels.max())
    if top >= len(known.classes):
        raise InputError(
            f"{data.name} has label {top}, but {victim.name} has {len(known.classes)} classes: "
            f"take data and victim that belong together"
        )
    present = [c for c in sorted(set(data.labels.tolist())) if c < len(data.classes)]
    differ = [c for c in present if _plain(data.classes[c]) != _plain(known.classes[c])]
    # a name or two may be spelled otherwise; most of them cannot
    if 2 * len(differ) > len(present):
        c = differ[0]
        raise InputError(
            f"class {c} is {data.classes[c]!r} in {data.name} but {known.classes[c]!r} for "
            f"{victim.name}: take data and victim that belong together"
        )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
