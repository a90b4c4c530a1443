"""Modules that are imported when they are first used, and without a trace."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def submodules(package: str) -> Callable[[str], ModuleType]:
    """A ``__getattr__`` for a package, so that ``package.module`` needs no import of its own."""

    def getter(name: str) -> ModuleType:
        if name.startswith("_") or find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return getter


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """For packages that draw from Python's generator as they are imported: it is the user's."""
    before = random.getstate()
    try:
        yield
    finally:
        random.setstate(before)
