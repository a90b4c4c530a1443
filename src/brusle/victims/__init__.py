"""Victims: the models under test, and how to get one by name."""

from brusle.victims.adapting import resolve_device
from brusle.victims.onnx import OnnxVictim, export_onnx
from brusle.victims.recording import recorded
from brusle.victims.registry import as_victim, known_victims, load_victim, risk
from brusle.victims.wrappers import FunctionVictim, TorchVictim, normalised, timed, wrap

__all__ = [
    "FunctionVictim",
    "OnnxVictim",
    "TorchVictim",
    "as_victim",
    "export_onnx",
    "known_victims",
    "load_victim",
    "normalised",
    "recorded",
    "resolve_device",
    "risk",
    "timed",
    "wrap",
]
