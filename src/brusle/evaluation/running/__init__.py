"""How an evaluation is planned, cut into shards, and done."""

from brusle.lazy import submodules

__getattr__ = submodules(__name__)
