"""What is attacked: the images and targets of an evaluation, read a part at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from brusle.data import Source, as_source, risk
from brusle.data.sets import remembering
from brusle.defaults import GOALS
from brusle.errors import InputError
from brusle.evaluation.record import GoalName
from brusle.evaluation.running.pairs import drawn, number_of_classes
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.storing.manifest import Manifest, ManifestImage, Originals, Targets, in_parts
from brusle.names import require_harmless
from brusle.problems import Problems
from brusle.victim import Victim

Portion = tuple[Sequence[ManifestImage], Tensor]  # of a manifest, with the images


@dataclass(frozen=True)
class ProblemList:
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

    def distinct(self) -> ProblemList:
        """Every problem where it stands first."""
        first: dict[int, int] = {}
        for row, number in enumerate(self.ids.tolist()):
            first.setdefault(number, row)
        rows = list(first.values())
        targets = None if self.targets is None else self.targets[rows]
        return ProblemList(self.images[rows], targets, self.ids[rows])


@dataclass(frozen=True)
class Workload:
    """The problems of an evaluation; make it with `of_manifest` or `drawn`.

    Attributes:
        manifest: the images and their targets.
        source: where the images are.
        originals: the images by name.
        shape: of an image.
        lists: the problems of each goal that the manifest has any of.
    """

    manifest: Manifest
    source: Source
    originals: Originals
    shape: tuple[int, int, int]
    lists: dict[GoalName, ProblemList]

    @classmethod
    def of(cls, plan: Plan, victim: Victim) -> Workload:
        """What a plan is about; without targets, if no attack of it has any."""
        data, pairs = plan.data, plan.pairs
        if pairs is None:
            targets = plan.targets if plan.targeted else 0
            source = as_source(data, victim)
            return cls.drawn(source, targets, plan.limit, plan.seeds[0], victim)
        manifest = pairs if isinstance(pairs, Manifest) else Manifest.read(pairs)
        if isinstance(data, str):
            if manifest is not pairs and data != manifest.data:
                origin = f"the manifest {pairs}"
                require_harmless(origin, "data", manifest.data, risk(manifest.data))
            data = manifest.data
        return cls.of_manifest(manifest, as_source(data, victim))

    @classmethod
    def of_manifest(cls, manifest: Manifest, source: Source) -> Workload:
        """Read every image once, to see that it is the right one and that it can be attacked."""
        source = remembering(manifest.labelling(source))
        originals = Originals(source, manifest.known)
        size = originals.take([manifest.entries[0].name]).nbytes
        parts = in_parts(manifest.entries, size)
        portions = ((part, originals.take([entry.name for entry in part])) for part in parts)
        _, lists, shape = _read(portions)
        return cls(manifest, source, originals, shape, lists)

    @classmethod
    def drawn(
        cls, source: Source, targets: Targets, limit: int | None, seed: int, victim: Victim
    ) -> Workload:
        """Images evenly over the classes and random targets; every image is read once."""
        source = remembering(source)
        classes = number_of_classes(source, victim)
        if targets and classes < 2:
            raise InputError("a targeted evaluation needs at least 2 classes in the data")
        portions = drawn(source, source.chosen(limit), targets, seed, range(classes))
        entries, lists, shape = _read(portions)
        manifest = Manifest(source.name, None, seed, classes, 0, entries)
        return cls(manifest, source, Originals(source, manifest.known), shape, lists)

    def list_of(self, goal: GoalName) -> ProblemList:
        """The problems of a goal."""
        if goal not in self.lists:
            raise InputError("the manifest has no targets: make one with --targets")
        return self.lists[goal]

    def names(self, goal: GoalName, rows: Sequence[int]) -> list[str]:
        """What the images of the problems in ``rows`` of their list are called."""
        images = self.list_of(goal).images[list(rows)].tolist()
        return [self.manifest.entries[at].name for at in images]

    def problems(self, goal: GoalName, rows: Sequence[int]) -> Problems:
        """The problems in ``rows`` of their list, with their images."""
        listed, rows = self.list_of(goal), list(rows)
        labels = [self.manifest.entries[at].label for at in listed.images[rows].tolist()]
        return Problems.make(
            self.originals.take(self.names(goal, rows)),
            labels,
            None if listed.targets is None else listed.targets[rows],
            listed.ids[rows],
        )


def _read(
    portions: Iterable[Portion],
) -> tuple[tuple[ManifestImage, ...], dict[GoalName, ProblemList], tuple[int, int, int]]:
    """All entries, the problems of each goal, and the shape of an image.

    Images are looked at and let go.
    """
    entries: list[ManifestImage] = []
    parts: dict[GoalName, list[ProblemList]] = {goal: [] for goal in GOALS}
    channels = height = width = 0
    for mine, images in portions:
        for goal in GOALS:
            rows, labels, targets = _aims(mine, goal)
            if len(rows):
                ids = Problems.make(images[rows], labels, targets).ids
                parts[goal].append(ProblemList(len(entries) + rows, targets, ids))
        entries += mine
        channels, height, width = images.shape[1:]
    lists = {goal: _joined(found).distinct() for goal, found in parts.items() if found}
    return tuple(entries), lists, (channels, height, width)


def _aims(entries: Sequence[ManifestImage], goal: GoalName) -> tuple[Tensor, Tensor, Tensor | None]:
    """Number of the image, label and target of every problem."""
    if goal == "untargeted":
        labels = torch.tensor([entry.label for entry in entries])
        return torch.arange(len(entries)), labels, None
    pairs = [(at, e.label, target) for at, e in enumerate(entries) for target in e.targets]
    rows, labels, targets = torch.tensor(pairs, dtype=torch.int64).view(-1, 3).unbind(1)
    return rows, labels, targets


def _joined(parts: Sequence[ProblemList]) -> ProblemList:
    targets = [part.targets for part in parts if part.targets is not None]
    return ProblemList(
        torch.cat([part.images for part in parts]),
        torch.cat(targets) if targets else None,
        torch.cat([part.ids for part in parts]),
    )
