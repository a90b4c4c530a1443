"""The paper's numbers, its tables as presets, and how they are reproduced."""

from brusle.lazy import submodules

__getattr__ = submodules(__name__)
