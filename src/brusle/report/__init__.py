"""What people look at: tables and pictures."""

from brusle.lazy import submodules

__getattr__ = submodules(__name__)
