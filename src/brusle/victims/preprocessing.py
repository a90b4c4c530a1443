"""What a victim does to images in [0, 1] before its net sees them, and how to have it otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brusle.names import Name
from brusle.victim import Victim
from brusle.victims.onnx import OnnxVictim
from brusle.victims.options import IMAGENET, Normalisation
from brusle.victims.wrappers import TorchVictim, _Normalise

_NORMALISE_THEMSELVES = (
    "checkpoint",
    "hf",
    "torchvision",
    "timm",
)  # unless the name says mean=none
_TAKE_MEAN = (*_NORMALISE_THEMSELVES, "onnx", "torchscript", "export")


@dataclass(frozen=True)
class Convention:
    """A usual range of a net's input.

    Attributes:
        words: what people call it.
        normalisation: how it is made of images in [0, 1].
    """

    words: str
    normalisation: Normalisation

    def apply(self, images: Tensor) -> Tensor:
        """Images in [0, 1] as the net wants them."""
        mean, std = _columns(self.normalisation, images)
        return (images - mean) / std


def conventions(channels: int) -> list[Convention]:
    """What nets for images of so many channels usually want."""

    def same(mean: float, std: float) -> Normalisation:
        return Normalisation((mean,) * channels, (std,) * channels)

    usual = [
        Convention("values from 0 to 1", same(0, 1)),
        Convention("values from 0 to 255", same(0, 1 / 255)),
        Convention("values from -1 to 1", same(0.5, 0.5)),
    ]
    return [*usual, Convention("ImageNet's normalisation", IMAGENET)] if channels == 3 else usual


def present(victim: Victim, channels: int) -> Normalisation | None:
    """What the victim does now, as far as it can be changed from outside; None if unknown."""
    nothing = Normalisation((0.0,) * channels, (1.0,) * channels)
    innermost = undefended(victim)
    if isinstance(innermost, OnnxVictim):
        if kind_of(innermost) not in ("", "onnx") or innermost.takes_levels:
            return None  # exported, with its normalisation inside
        known = innermost.normalisation or nothing
        scale = innermost.scale
        return _for_channels(
            [m / scale for m in known.mean], [s / scale for s in known.std], channels
        )
    module = getattr(innermost, "module", None)
    if isinstance(module, nn.Sequential) and len(module) and isinstance(module[0], _Normalise):
        mean, std = (part.flatten().tolist() for part in (module[0].mean, module[0].std))
        return _for_channels(mean, std, channels)
    return nothing


def others(victim: Victim, channels: int) -> list[Convention]:
    """The usual conventions that the victim does not follow now; none if that is unknown."""
    now = present(victim, channels)
    if now is None or len(now.mean) != channels:
        return []
    return [one for one in conventions(channels) if not _alike(one.normalisation, now)]


def as_if(victim: Victim, images: Tensor, wanted: Convention) -> Tensor:
    """Images for which the victim's net gets what it would get under another convention."""
    now = present(victim, images.shape[1])
    assert now is not None  # `others` has left it out
    mean, std = _columns(now, images)
    return wanted.apply(images) * std + mean


def remedy(victim: Victim, wanted: Convention) -> str:
    """How the user gets a victim that follows ``wanted``."""
    innermost = undefended(victim)
    mean, std = wanted.normalisation.mean, wanted.normalisation.std
    kind = kind_of(innermost)
    if kind in _TAKE_MEAN:
        return f'name it "{_renamed(innermost.name, kind, mean, std)}"'
    values = f"mean=[{_listed(mean, ', ')}], std=[{_listed(std, ', ')}]"
    if kind in ("python", ""):
        if isinstance(innermost, TorchVictim):
            where = "return" if kind else "give"
            if set(mean) == {0} and set(std) == {1}:
                return f"{where} the model without brusle.victims.normalised around it"
            return f"{where} brusle.victims.normalised(model, {values})"
        return f"let it compute (images - mean) / std first, with {values}"
    return f"put brusle.victims.normalised(model, {values}) in its place"


def suspects(victim: Victim) -> str:
    """What usually is to blame when a trained net only guesses, in the user's terms."""
    innermost = undefended(victim)
    kind = kind_of(innermost)
    how = "brusle.victims.normalised"
    if kind in _TAKE_MEAN:
        scale = ", scale=" if kind == "onnx" else ""
        how = f"mean=, std={scale} in its name"
    causes = [f"its normalisation (now {_in_words(victim)}; see {how})"]
    if kind == "checkpoint":
        arch = Name.parse(innermost.name).options.get("arch", "")
        causes.append(f"another net than arch={arch}")
    return ", ".join([*causes, "labels in another order", "weights of something else"])


def undefended(victim: Victim) -> Victim:
    """The victim behind all defences."""
    inside: Any = victim
    while (deeper := getattr(inside, "victim", None)) is not None:
        inside = deeper
    found: Victim = inside
    return found


def kind_of(victim: Victim) -> str:
    """What stands before the colon of its name; empty if it was made in Python."""
    kind, colon, _ = victim.name.partition(":")
    return kind if colon else ""


def _renamed(text: str, kind: str, mean: Sequence[float], std: Sequence[float]) -> str:
    """The name with another normalisation."""
    name = Name.parse(text)
    options = {k: v for k, v in name.options.items() if k not in ("mean", "std", "scale")}
    plain = set(mean) == {0}
    if plain and set(std) == {1}:
        options |= {"mean": "none"} if kind in _NORMALISE_THEMSELVES else {}
    elif plain and kind == "onnx" and len(set(std)) == 1:
        options |= {"scale": f"{1 / std[0]:g}"}
    else:
        options |= {"mean": _listed(mean, ","), "std": _listed(std, ",")}
    query = "&".join(f"{key}={value}" for key, value in options.items())
    return f"{name.kind}:{name.rest}" + (f"?{query}" if query else "")


def _for_channels(mean: list[float], std: list[float], channels: int) -> Normalisation:
    """One number for all channels, or one for each."""
    times = channels if len(mean) == 1 else 1
    return Normalisation(tuple(mean * times), tuple(std * times))


def _in_words(victim: Victim) -> str:
    now = present(victim, 1)
    if now is None:
        return "unknown"
    if set(now.mean) == {0} and set(now.std) == {1}:
        return "none"
    return f"mean {_listed(now.mean, ',')} and std {_listed(now.std, ',')}"


def _columns(normalisation: Normalisation, images: Tensor) -> tuple[Tensor, Tensor]:
    mean, std = (
        torch.tensor(values, dtype=images.dtype).view(1, -1, 1, 1)
        for values in (normalisation.mean, normalisation.std)
    )
    return mean, std


def _alike(a: Normalisation, b: Normalisation) -> bool:
    pairs = zip((*a.mean, *a.std), (*b.mean, *b.std), strict=True)
    return all(abs(x - y) <= 0.01 * max(abs(x), abs(y), 1e-3) for x, y in pairs)


def _listed(numbers: Sequence[float], comma: str) -> str:
    return comma.join(f"{number:.6g}" for number in numbers)
