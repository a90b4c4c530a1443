"""The numbers that come out of stored rows."""

from brusle.lazy import submodules

__getattr__ = submodules(__name__)
