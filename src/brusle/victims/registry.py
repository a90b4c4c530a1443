"""From what a user says ("zoo:cifar10-resnet20", a module, a victim) to a victim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from brusle import zoo
from brusle.errors import InputError
from brusle.oracle import Victim
from brusle.victims.wrappers import FunctionVictim, TorchVictim


def known_victims() -> dict[str, str]:
    """Names that `load_victim` takes, with a line about each."""
    return {f"zoo:{name}": zoo.card(name)["summary"] for name in zoo.names()}


def load_victim(name: str, device: str = "auto") -> Victim:
    """The victim called ``name``, such as ``"zoo:cifar10-resnet20"``.

    Args:
        name: one of `known_victims`.
        device: ``"auto"`` is CUDA where there is one.
    """
    kind, _, rest = name.partition(":")
    if kind != "zoo" or rest not in zoo.names():
        known = ", ".join(known_victims())
        raise InputError(f"unknown victim {name!r}: known are {known}")
    card = zoo.card(rest)
    return TorchVictim(
        zoo.load(rest),
        output="logits",
        device=resolve_device(device),
        name=name,
        classes=card["classes"],
        shape=tuple(card["shape"]),
    )


def as_victim(model: Any, device: str = "auto") -> Victim:
    """Turn what a user hands to an attack into a victim.

    A module is taken to return logits, as everywhere in this field; what it returns is checked.
    A plain function must be declared with `brusle.victims.wrap`.
    """
    if isinstance(model, str):
        return load_victim(model, device)
    if isinstance(model, nn.Module):
        where = resolve_device(device) if device != "auto" else _device_of(model)
        return TorchVictim(model, device=where, name=type(model).__name__)
    if isinstance(model, TorchVictim | FunctionVictim):
        if device == "auto" or resolve_device(device) == model.device:
            return model
        return replace(model, device=resolve_device(device))
    if all(hasattr(model, name) for name in ("name", "output", "device")) and callable(model):
        victim: Victim = model
        return victim
    if callable(model):
        raise InputError(
            "a plain function does not say what it returns: declare it, as in "
            "brusle.victims.wrap(function, output='logits', arrays='numpy')"
        )
    raise InputError(
        f"{type(model).__name__} is no victim: give an nn.Module, a victim from "
        f"brusle.load_victim, or a function declared with brusle.victims.wrap"
    )


def resolve_device(device: str) -> torch.device:
    """``"auto"`` is CUDA if there is one; anything else is checked to exist."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {device!r} cannot be used here ({reason}): try 'cpu'") from error
    return where


def default_batch_size(shape: tuple[int, int, int], device: torch.device) -> int:
    """Images per model call: about a million pixels on a CPU, eight times that elsewhere."""
    _, h, w = shape
    budget = 2**20 if device.type == "cpu" else 2**23
    return max(1, min(256 if device.type == "cpu" else 1024, budget // (h * w)))


def _device_of(module: nn.Module) -> torch.device:
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")
