"""Victims: the models under test, and how to get one by name."""

from brusle.victims.registry import (
    as_victim,
    default_batch_size,
    known_victims,
    load_victim,
    resolve_device,
)
from brusle.victims.wrappers import FunctionVictim, TorchVictim, normalised, wrap

__all__ = [
    "FunctionVictim",
    "TorchVictim",
    "as_victim",
    "default_batch_size",
    "known_victims",
    "load_victim",
    "normalised",
    "resolve_device",
    "wrap",
]
