"""Evaluation pairs: which images are attacked, and which target classes each has to reach.

The paper takes images that the victim classifies correctly, evenly over the classes, each with all
other classes (CIFAR-10, STL-10) or a few random ones (ImageNet) as targets. A `Manifest` is such a
choice, written down: it is reproducible from a seed, and it carries a hash of every image, so that
two evaluations with one manifest have attacked the same pixels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from brusle.data import Dataset, Source, risk, source
from brusle.data.sets import MOST_CLASSES
from brusle.errors import DataError
from brusle.files import write_text
from brusle.names import require_harmless
from brusle.text import brief, shortened

T = TypeVar("T")
Targets = Literal["all"] | int
_AT_ONCE = 16 << 20  # bytes of images: enough to be quick, too few to notice
_FORMAT = "brusle-pairs-1"


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
        vocabulary: names of the labels, where they are the victim's own words for the images and
            not the data's (`brusle.evaluation.running.listed_targets`); else empty.
    """

    data: str
    victim: str | None
    seed: int
    classes: int
    queries: int
    entries: tuple[ManifestImage, ...]
    vocabulary: tuple[str, ...] = ()

    @property
    def pairs(self) -> int:
        """Number of (image, target) pairs."""
        return sum(len(entry.targets) for entry in self.entries)

    @property
    def digest(self) -> str:
        """A short hash of the images and targets: the same for the same evaluation set."""
        entries = json.dumps([(e.sha256, *self._meant(e)) for e in self.entries])
        return hashlib.sha256(entries.encode()).hexdigest()[:16]

    def _meant(self, entry: ManifestImage) -> tuple[Any, tuple[Any, ...]]:
        """Label and targets; by name where numbers only say in which order names were met."""
        if not self.vocabulary:
            return entry.label, entry.targets
        return self.vocabulary[entry.label], tuple(self.vocabulary[t] for t in entry.targets)

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
                if not 0 <= number < (len(self.vocabulary) or MOST_CLASSES):
                    raise ValueError(f"image {brief(entry.name)} has class {brief(number)}")

    @property
    def known(self) -> dict[str, tuple[int, str]]:
        """Label and hash of each image, by name."""
        return {entry.name: (entry.label, entry.sha256) for entry in self.entries}

    def labelling(self, source: Source) -> Source:
        """``source`` with the labels of this choice, where they are not the data's own."""
        if not self.vocabulary:
            return source
        return source.relabelled({e.name: e.label for e in self.entries}, self.vocabulary)

    def dataset(self, victim: Any = None) -> Dataset:
        """Read all images, and check that they are the ones that were chosen.

        Args:
            victim: the one that photographs are framed for.
        """
        require_harmless("the manifest", "data", self.data, risk(self.data))
        originals = Originals(self.labelling(source(self.data, like=victim)), self.known)
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
