"""What a run folder holds, and how it is read, checked and exported."""

from brusle.lazy import submodules

__getattr__ = submodules(__name__)
