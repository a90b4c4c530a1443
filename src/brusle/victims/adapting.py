"""From what a user hands over (a module, a victim) to a victim, and where it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from brusle.errors import InputError, first_line
from brusle.victim import Victim
from brusle.victims.wrappers import FunctionVictim, TorchVictim


def adapt(model: Any, device: str = "auto") -> Victim:
    """A module or a victim as a victim.

    A module is taken to return logits, as everywhere in this field; what it returns is checked.
    A plain function must be declared with `brusle.victims.wrap`.
    """
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
        reason = first_line(error)
        raise InputError(f"device {device!r} cannot be used here ({reason}): try 'cpu'") from error
    return where


def _device_of(module: nn.Module) -> torch.device:
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")
