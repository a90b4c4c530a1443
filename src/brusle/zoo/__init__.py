"""Bundled classifiers: architecture, weights, and a card that says where they come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

from torch import nn

from brusle.lazy import submodules

__getattr__ = submodules(__name__)


@cache
def names() -> tuple[str, ...]:
    """Names of the bundled models."""
    cards = (entry.name for entry in files("brusle.zoo").joinpath("models").iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in cards if name.endswith(".json")))


@cache
def card(name: str) -> dict[str, Any]:
    """The model card: data, recipe, seed, accuracy, and how to repeat it."""
    text = files("brusle.zoo").joinpath("models", f"{name}.json").read_text()
    result: dict[str, Any] = json.loads(text)
    return result


def build(architecture: str, classes: int = 10) -> nn.Module:
    """An untrained net of one of the zoo's architectures."""
    from brusle.zoo.resnet import resnet20
    from brusle.zoo.vit import SmallViT

    builders: dict[str, Callable[[int], nn.Module]] = {"resnet20": resnet20, "vit": SmallViT}
    return builders[architecture](classes)


def load(name: str) -> nn.Module:
    """The model called ``name`` with its weights, in evaluation mode, on the CPU."""
    from safetensors.torch import load as load_tensors

    from brusle.zoo.planes import joined

    model = build(card(name)["architecture"], len(card(name)["classes"]))
    weights = files("brusle.zoo").joinpath("models", f"{name}.safetensors").read_bytes()
    model.load_state_dict(joined(load_tensors(weights)))
    return model.eval()
