"""Evaluation pairs: which images are attacked, and which target classes each has to reach.

The paper takes images that the victim classifies correctly, evenly over the classes, each with all
other classes (CIFAR-10, STL-10) or a few random ones (ImageNet) as targets. A `Manifest` is such a
choice, written down: it is reproducible from a seed, and it carries a hash of every image, so that
two evaluations with one manifest have attacked the same pixels.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from brusle import rng
from brusle.data import Dataset, Source, risk, source
from brusle.data.sets import MOST_CLASSES
from brusle.errors import DataError, InputError, VictimError
from brusle.files import write_text
from brusle.names import require_harmless
from brusle.oracle import Oracle, traits
from brusle.text import brief, shortened
from brusle.victims import as_victim, default_batch_size

T = TypeVar("T")
Targets = Literal["all"] | int
_AT_ONCE = 16 << 20  # bytes of images: enough to be quick, too few to notice
_FORMAT = "brusle-pairs-1"
_IMAGE_ORDER, _TARGET_ORDER, _CLASS_ORDER = range(3)  # tags of the random numbers


@dataclass(frozen=True)
class ManifestImage:
    """One image of a manifest.

    Attributes:
        name: what the image is called in its data set.
        label: its class.
        sha256: hash of its shape and values, see `image_hash`.
        targets: the classes to reach, one pair each.
    """

    name: str
    label: int
    sha256: str
    targets: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """Images and targets of an evaluation.

    Attributes:
        data: name of the data set.
        victim: name of the victim that classifies all images correctly; None if not asked.
        seed: the seed of the choice.
        classes: number of classes that targets were drawn from.
        queries: clean queries that the choice took.
        entries: the images.
    """

    data: str
    victim: str | None
    seed: int
    classes: int
    queries: int
    entries: tuple[ManifestImage, ...]

    @property
    def pairs(self) -> int:
        """Number of (image, target) pairs."""
        return sum(len(entry.targets) for entry in self.entries)

    @property
    def digest(self) -> str:
        """A short hash of the images and targets: the same for the same evaluation set."""
        entries = json.dumps([(e.sha256, e.label, e.targets) for e in self.entries])
        return hashlib.sha256(entries.encode()).hexdigest()[:16]

    def write(self, path: str | Path) -> None:
        """Write the manifest as JSON."""
        text = json.dumps({"format": _FORMAT, "digest": self.digest, **asdict(self)}, indent=1)
        write_text(path, text + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Manifest:
        """Read a manifest and check that nobody has changed its entries."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            stated, kind = content.pop("digest"), content.pop("format")
            manifest = TypeAdapter(cls).validate_json(json.dumps(content), strict=True)
            manifest.check()
        except OSError as error:
            raise DataError(f"cannot read the manifest {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path} is no manifest of evaluation pairs ({_reason(error)}): make one with "
                f"`brusle pairs`"
            ) from error
        if kind != _FORMAT or stated != manifest.digest:
            raise DataError(
                f"the manifest {path} was changed or is of another version: make it again with "
                f"`brusle pairs`"
            )
        return manifest

    def check(self) -> None:
        """Raise if this cannot be a choice of images, whatever its hash says."""
        if not self.entries:
            raise ValueError("it has no images")
        if len(self.known) < len(self.entries):
            raise ValueError("two images have the same name")
        for entry in self.entries:
            for number in (entry.label, *entry.targets):
                if not 0 <= number < MOST_CLASSES:
                    raise ValueError(f"image {brief(entry.name)} has class {brief(number)}")

    @property
    def known(self) -> dict[str, tuple[int, str]]:
        """Label and hash of each image, by name."""
        return {entry.name: (entry.label, entry.sha256) for entry in self.entries}

    def dataset(self, victim: Any = None) -> Dataset:
        """Read all images, and check that they are the ones that were chosen.

        Args:
            victim: the one that photographs are framed for.
        """
        require_harmless("the manifest", "data", self.data, risk(self.data))
        originals = Originals(source(self.data, like=victim), self.known)
        labels, names = torch.tensor([e.label for e in self.entries]), tuple(self.known)
        classes = originals.source.classes
        return Dataset(self.data, originals.take(names), labels, classes, names)


def _reason(error: Exception) -> str:
    """What is wrong with a manifest, in a few words."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return shortened(str(error))


class Originals:
    """Images by name, read when they are needed, and compared with their labels and hashes."""

    def __init__(self, source: Source, known: Mapping[str, tuple[int, str]]) -> None:
        self.source, self._known = source, known
        self._rows = {name: row for row, name in enumerate(source.names)}

    def take(self, names: Sequence[str]) -> Tensor:
        """``(n, c, h, w)``: the images of these names; one may be wanted several times."""
        for name in names:
            if name not in self._known or name not in self._rows:
                raise DataError(
                    f"image {name} of the run is not in {self.source.name}: give its data (--data)"
                )
        different = list(dict.fromkeys(names))
        images = self.source.read([self._rows[name] for name in different])
        for name, image in zip(different, images, strict=True):
            label = int(self.source.labels[self._rows[name]])
            if (label, image_hash(image)) != self._known[name]:
                raise DataError(
                    f"image {name} of {self.source.name} is not the one that was chosen: its "
                    f"pixels or label differ (another version of the data, or another framing?)"
                )
        positions = {name: at for at, name in enumerate(different)}
        return images[[positions[name] for name in names]]


def choose(
    data: str | Source | Dataset,
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
        data: a name, a source or a data set.
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
    place = source(data, like=model) if isinstance(data, str) else data
    classes = number_of_classes(place, model)
    oracle = None
    if model is not None:
        shape = tuple(take(place, [0]).images.shape[1:])
        size = batch_size or default_batch_size((shape[0], shape[1], shape[2]), model.device)
        oracle = Oracle(model, len(place), limit=0, batch_size=size)
    failures: list[str] = []
    rows = _in_turn(place, oracle, images or len(place), seed, failures)
    if failures and oracle is not None and not int(oracle.ledger.clean.sum()):
        raise VictimError(f"no image of {place.name} could be classified: {failures[0]}")
    if not rows:
        raise InputError(f"the victim classifies no image of {place.name} correctly")
    aims: Sequence[int] = range(classes)
    if with_starts:
        # classes take turns, so that so many images are one of each class that has one
        one_each = _in_turn(place, oracle, len(set(place.labels.tolist())), seed, failures)
        aims = sorted({int(place.labels[row]) for row in one_each})
    return manifest(
        place,
        rows,
        targets,
        seed,
        classes,
        aims=aims,
        victim=None if model is None else model.name,
        queries=0 if oracle is None else int(oracle.ledger.clean.sum()),
    )


def manifest(
    data: Source | Dataset,
    rows: Sequence[int],
    targets: Targets,
    seed: int,
    classes: int,
    victim: str | None = None,
    queries: int = 0,
    aims: Sequence[int] | None = None,
) -> Manifest:
    """The manifest of the images in some rows of ``data``; ``aims`` are None for all classes."""
    if not rows:
        raise InputError(f"there are no images in {data.name}: give another folder or file")
    entries: list[ManifestImage] = []
    for part in in_parts(rows, take(data, rows[:1]).images.nbytes):
        some = take(data, part)
        for name, label, image in zip(some.names, some.labels.tolist(), some.images, strict=True):
            others = [c for c in (range(classes) if aims is None else aims) if c != label]
            mine = _targets(image, others, targets, seed)
            entries.append(ManifestImage(name, label, image_hash(image), mine))
    return Manifest(data.name, victim, seed, classes, queries, tuple(entries))


def in_parts(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Things that belong to images of ``size`` bytes each, as many as are well read at once."""
    step = max(1, _AT_ONCE // size)
    for start in range(0, len(things), step):
        yield things[start : start + step]


def image_hash(image: Tensor) -> str:
    """SHA-256 of an image's shape and float32 values."""
    digest = hashlib.sha256(str(tuple(image.shape)).encode())
    digest.update(image.contiguous().numpy().tobytes())
    return digest.hexdigest()


def number_of_classes(data: Source | Dataset, victim: Any = None) -> int:
    """As the victim says, or the data; else the largest label decides."""
    named = traits(victim).classes if victim is not None else None
    return len(named or data.classes) or int(data.labels.max()) + 1


def _targets(image: Tensor, others: Sequence[int], targets: Targets, seed: int) -> tuple[int, ...]:
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
    order = _shuffled(len(others), seed, rng.content_id(image.numpy().tobytes()), _TARGET_ORDER)
    return tuple(others[at] for at in order[:targets])


def _in_turn(
    data: Source | Dataset, oracle: Oracle | None, images: int, seed: int, failures: list[str]
) -> list[int]:
    """Rows of ``data`` as `choose` says; why the victim failed is added to ``failures``."""
    labels = data.labels.tolist()
    order = _shuffled(len(labels), seed, 0, _IMAGE_ORDER)
    queues: dict[int, deque[int]] = {}
    for row in order:
        queues.setdefault(labels[row], deque()).append(row)
    present = sorted(queues)
    turn = [present[at] for at in _shuffled(len(present), seed, 0, _CLASS_ORDER)]
    chosen: list[int] = []
    have = dict.fromkeys(turn, 0)
    while len(chosen) < images and any(queues.values()):
        fewest = min(have[c] for c in turn if queues[c])
        now = [c for c in turn if queues[c] and have[c] == fewest][: images - len(chosen)]
        rows = [queues[c].popleft() for c in now]
        for c, row, right in zip(now, rows, _right(data, rows, oracle, failures), strict=True):
            if right:
                chosen.append(row)
                have[c] += 1
    return chosen


def _right(
    data: Source | Dataset, rows: list[int], oracle: Oracle | None, failures: list[str]
) -> list[bool]:
    if oracle is None:
        return [True] * len(rows)
    some = take(data, rows)
    answers = oracle.ask(torch.tensor(rows), some.images, "clean")
    failures += answers.errors.values()
    right: list[bool] = (answers.labels.cpu() == some.labels).tolist()
    return right


def _shuffled(count: int, seed: int, identity: int, tag: int) -> list[int]:
    """A random order of ``count`` things."""
    stream = rng.streams(seed, torch.tensor([identity]))
    order: list[int] = rng.bits(stream, 0, tag, count)[0].sort(stable=True).indices.tolist()
    return order


def take(data: Source | Dataset, rows: Sequence[int]) -> Dataset:
    """Some images of ``data``, read if they are not yet."""
    if isinstance(data, Source):
        return data.take(rows)
    rows, names = list(rows), tuple(data.names[row] for row in rows)
    return Dataset(data.name, data.images[rows], data.labels[rows], data.classes, names)
