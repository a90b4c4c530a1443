"""Defences: victims that wrap a victim and change what goes in or what comes out.

    victim = brusle.defences.RandomNoise(brusle.load_victim("zoo:cifar10-resnet20"), sigma=0.02)
    victim = brusle.defences.make("rnd:0.02", victim)        # the same, as --defence does it

A defended victim says what it has become: randomised, or giving only part of the scores.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from brusle import rng
from brusle.errors import InputError, VictimError
from brusle.foreign import foreign_code, load_plugin
from brusle.names import Name, plain_value
from brusle.registry import Kind, Registry
from brusle.scores import ABSENT, Gives, Missing, Output
from brusle.trouble import Patience
from brusle.victim import Victim, call_victim, traits
from brusle.victims.factories import returned_victim
from brusle.victims.recording import Recorded
from brusle.victims.wrappers import VictimView
from brusle.vocabulary import Vocabulary


@dataclass(frozen=True)
class Defence:
    """What all defences share: they pass on what the wrapped ``victim`` says of itself.

    Attributes:
        victim: the wrapped victim.
        risk: what making it by name does beyond computing, for a message; empty if nothing.
    """

    victim: Victim
    risk: ClassVar[str] = ""

    @property
    def label(self) -> str:
        """The defence as `make` would take it."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        return f"{self.victim.name} + {self.label}"

    @property
    def device(self) -> torch.device:
        return self.victim.device

    @property
    def output(self) -> Output:
        return self.victim.output

    @property
    def randomised(self) -> bool:
        return traits(self.victim).randomised

    @property
    def gives(self) -> Gives:
        return traits(self.victim).gives

    @property
    def classes(self) -> Sequence[str] | None:
        return traits(self.victim).classes

    @property
    def vocabulary(self) -> Vocabulary | None:
        return traits(self.victim).vocabulary

    @property
    def missing(self) -> Missing:
        return traits(self.victim).missing

    @property
    def shape(self) -> tuple[int, int, int] | None:
        return traits(self.victim).shape

    @property
    def framing(self) -> Any:
        return traits(self.victim).framing

    @property
    def patience(self) -> Patience:
        return traits(self.victim).patience

    def __call__(self, images: Tensor) -> Tensor:
        """Scores of ``(n, c, h, w)`` images; noise follows torch's global seed."""
        return self.draw(images, torch.randint(2**62, (len(images),)))

    def draw(self, images: Tensor, keys: Tensor) -> Tensor:
        """Scores of images, with noise that is a function of the ``(n,)`` ``keys``."""
        # the wrapped victim may be a noisy one as well: its noise must be another
        return self.after(call_victim(self.victim, self.before(images, keys), rng.mix(~keys)))

    def before(self, images: Tensor, keys: Tensor) -> Tensor:
        """What the defence does to images."""
        return images

    def after(self, scores: Tensor) -> Tensor:
        """What the defence does to scores."""
        return scores


@dataclass(frozen=True)
class RandomNoise(Defence):
    """RND (Qin et al., NeurIPS 2021): Gaussian noise on the input of every query.

    The noise is inside the defended service, so the noisy image is not cut back to [0, 1].

    Attributes:
        sigma: standard deviation, for images in [0, 1].
    """

    sigma: float = 0.02

    def __post_init__(self) -> None:
        _require(self.sigma > 0, f"rnd needs a standard deviation above 0, not {self.sigma}")

    @property
    def label(self) -> str:
        return f"rnd:{self.sigma}"

    @property
    def randomised(self) -> bool:
        return True

    def before(self, images: Tensor, keys: Tensor) -> Tensor:
        # one generator per image: its noise cannot depend on the batch it is in
        generators = (torch.Generator().manual_seed(key) for key in keys.tolist())
        shape = images.shape[1:]
        noise = torch.stack([torch.randn(shape, generator=g) for g in generators])
        return images + self.sigma * noise.to(images.device)


@dataclass(frozen=True)
class MedianFilter(Defence):
    """The median of ``size`` x ``size`` pixels, per channel, borders reflected."""

    size: int = 3

    def __post_init__(self) -> None:
        odd = isinstance(self.size, int) and self.size % 2 == 1 and self.size > 1
        _require(odd, f"median needs an odd size of 3 or more, not {self.size}")

    @property
    def label(self) -> str:
        return f"median:{self.size}"

    def before(self, images: Tensor, keys: Tensor) -> Tensor:
        half, side = self.size // 2, self.size
        padded = F.pad(images, (half,) * 4, mode="reflect")
        windows = padded.unfold(2, side, 1).unfold(3, side, 1).flatten(4)
        return windows.median(dim=4).values


@dataclass(frozen=True)
class Jpeg(Defence):
    """Images saved as JPEG of ``quality`` (1 to 95) and read back."""

    quality: int = 75

    def __post_init__(self) -> None:
        good = isinstance(self.quality, int) and 1 <= self.quality <= 95
        _require(good, f"jpeg needs a quality from 1 to 95, not {self.quality}")

    @property
    def label(self) -> str:
        return f"jpeg:{self.quality}"

    def before(self, images: Tensor, keys: Tensor) -> Tensor:
        if images.shape[1] not in (1, 3):
            raise InputError(f"jpeg knows 1 or 3 channels, the images have {images.shape[1]}")
        levels = (images * 255).round().clamp(0, 255).byte().permute(0, 2, 3, 1).cpu().numpy()
        saved = np.stack([self._round_trip(image) for image in levels])
        back = torch.from_numpy(saved).permute(0, 3, 1, 2)
        return (back.float() / 255).to(images.device)

    def _round_trip(self, levels: Any) -> Any:
        grey = levels.shape[2] == 1
        file = io.BytesIO()
        picture = Image.fromarray(levels[:, :, 0] if grey else levels)
        picture.save(file, "JPEG", quality=self.quality)
        return np.asarray(Image.open(file)).reshape(levels.shape)


@dataclass(frozen=True)
class RoundScores(Defence):
    """Probabilities rounded to so many ``decimals``."""

    decimals: int = 2

    def __post_init__(self) -> None:
        good = isinstance(self.decimals, int) and self.decimals >= 0
        _require(good, f"round needs a number of decimals, not {self.decimals}")

    @property
    def label(self) -> str:
        return f"round:{self.decimals}"

    @property
    def output(self) -> Output:
        return "probabilities"

    def after(self, scores: Tensor) -> Tensor:
        # decided in float64, or 0.285 would be 0.28 or 0.29 by the accident of its float32 digits
        return _probabilities(scores, self.victim.output).double().round(decimals=self.decimals)


@dataclass(frozen=True)
class TopScores(Defence):
    """The probabilities of the best ``k`` classes; all others are absent."""

    k: int = 5

    def __post_init__(self) -> None:
        _require(isinstance(self.k, int) and self.k >= 1, f"topk needs k of 1 or more: {self.k}")

    @property
    def label(self) -> str:
        return f"topk:{self.k}"

    @property
    def output(self) -> Output:
        return "probabilities"

    @property
    def gives(self) -> Gives:
        return "label" if traits(self.victim).gives == "label" else "partial"

    def after(self, scores: Tensor) -> Tensor:
        scores = _probabilities(scores, self.victim.output)
        values, index = scores.topk(min(self.k, scores.shape[1]))
        others = 0.0 if self.gives == "label" else ABSENT
        return torch.full_like(scores, others).scatter(1, index, values)


@dataclass(frozen=True)
class Confidences(Defence):
    """A list of labels with confidences that do not sum to one, as cloud services give it.

    A class of probability p has the confidence p / (p + ``half``). Labels that are not listed score
    minus infinity, and the list may be empty.

    Attributes:
        half: the probability whose confidence is one half.
        least: the lowest confidence that is listed.
        most: how many labels are listed at most, the best ones.
    """

    half: float = 0.01
    least: float = 0.5
    most: int = 10

    def __post_init__(self) -> None:
        _require(self.half > 0, f"confidences needs a half above 0, not {self.half}")
        _require(0 <= self.least <= 1, f"confidences are from 0 to 1, the least is {self.least}")
        good = isinstance(self.most, int) and self.most >= 1
        _require(good, f"confidences lists 1 label or more, not {self.most}")
        _require(
            self.victim.output != "confidences",
            f"{self.victim.name} gives confidences already: leave confidences out",
        )

    @property
    def label(self) -> str:
        return f"confidences:{self.half},{self.least},{self.most}"

    @property
    def output(self) -> Output:
        return "confidences"

    @property
    def gives(self) -> Gives:
        return "label" if traits(self.victim).gives == "label" else "partial"

    def after(self, scores: Tensor) -> Tensor:
        # what the wrapped victim does not list has no probability that anybody knows
        chances = _probabilities(scores.double(), self.victim.output).clamp_min(0)
        confidences = chances / (chances + self.half)
        values, index = confidences.topk(min(self.most, scores.shape[1]))
        values = values.masked_fill(values < self.least, -torch.inf)
        return torch.full_like(confidences, -torch.inf).scatter(1, index, values)


@dataclass(frozen=True)
class LabelOnly(Defence):
    """The predicted label and nothing else: a score of 1 for it, 0 for the others."""

    @property
    def label(self) -> str:
        return "label"

    @property
    def output(self) -> Output:
        return "probabilities"

    @property
    def gives(self) -> Gives:
        return "label"

    def after(self, scores: Tensor) -> Tensor:
        return F.one_hot(scores.argmax(1), scores.shape[1]).to(scores.dtype)


@dataclass(frozen=True)
class PluginDefence(VictimView):
    """What a plugin has made, called as it was asked for.

    Attributes:
        behind: the victim that it was put before.
        label: the defence as `make` takes it.
    """

    behind: Victim
    label: str


def make(spec: str, victim: Victim) -> Victim:
    """Put the defence that ``spec`` describes before ``victim``.

    Args:
        spec: ``rnd:0.02``, which is ``rnd?sigma=0.02``; ``median:3``, ``jpeg:75``, ``round:2``,
            ``topk:5``, ``confidences:0.01,0.5,10``, ``label``, or the name of a plugin (entry point
            group ``brusle.defences``, called with the victim, the numbers behind the colon and the
            options).
        victim: the victim to defend.
    """
    name = Name.parse(spec)
    return REGISTRY.find(name).open(name, victim)


def defend(victim: Victim, specs: Sequence[str]) -> Victim:
    """Put several defences before ``victim``; the first is the innermost."""
    for spec in specs:
        victim = make(spec, victim)
    return victim


def taken_apart(victim: Victim) -> tuple[Victim, tuple[str, ...]]:
    """The victim behind its defences, and these as `make` takes them, the innermost first."""
    if isinstance(victim, Defence | PluginDefence):
        inner = victim.victim if isinstance(victim, Defence) else victim.behind
        behind, labels = taken_apart(inner)
        return behind, (*labels, victim.label)
    # a time limit or a journal is no other victim
    if isinstance(victim, VictimView | Recorded) and victim.name == victim.victim.name:
        return taken_apart(victim.victim)
    return victim, ()


def risk(spec: str) -> str:
    """What making the defence ``spec`` does beyond computing; empty if nothing."""
    return REGISTRY.risk(spec)


def known_defences() -> dict[str, str]:
    """Names that `make` takes, with a line about each."""
    return REGISTRY.summaries()


def _defended(kind: type[Defence], name: Name, victim: Victim) -> Victim:
    values = _numbers(name)
    known = [field.name for field in fields(kind) if field.name != "victim"]
    given = {option: name.take(option) for option in known}
    name.done()
    options = {option: _number(name, text) for option, text in given.items() if text is not None}
    try:
        return kind(victim, *values, **options)
    except TypeError as error:
        raise InputError(
            f"defence {name.text!r} has too many or too few values ({error})"
        ) from error


def _from_plugin(point: EntryPoint, name: Name, victim: Victim) -> Victim:
    build = load_plugin(point, "the defence", VictimError)
    values = _numbers(name)
    with foreign_code(f"defence {name.text!r} failed in {point.value}", VictimError):
        defended = build(victim, *values, **name.take_all())
    made = returned_victim(defended, f"{victim.name} + {name.text}", victim.device)
    return PluginDefence(made, made.name, traits(made).patience, victim, name.text)


def _numbers(name: Name) -> list[float]:
    """The numbers behind the colon."""
    return [_number(name, text) for text in name.rest.split(",")] if name.rest else []


def _number(name: Name, text: str) -> float:
    value = plain_value(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"defence {name.text!r}: {text!r} is no number")
    return value


def _probabilities(scores: Tensor, output: Output) -> Tensor:
    return scores.softmax(1) if output == "logits" else scores


def _require(good: bool, message: str) -> None:
    if not good:
        raise InputError(message)


DEFENCES: dict[str, type[Defence]] = {
    "rnd": RandomNoise,
    "median": MedianFilter,
    "jpeg": Jpeg,
    "round": RoundScores,
    "topk": TopScores,
    "confidences": Confidences,
    "label": LabelOnly,
}
REGISTRY: Registry[Callable[[Name, Victim], Victim]] = Registry(
    "defence",
    "defences",
    {
        name: Kind(partial(_defended, kind), name, (kind.__doc__ or "").splitlines()[0], kind.risk)
        for name, kind in DEFENCES.items()
    },
    _from_plugin,
)
