"""Names and modules that are imported when they are first used, and without a trace."""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def submodules(package: str) -> Callable[[str], ModuleType]:
    """A ``__getattr__`` for a package, so that ``package.module`` needs no import of its own."""

    def getter(name: str) -> ModuleType:
        if name.startswith("_") or find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return getter


def public_names(package: str) -> tuple[list[str], Callable[[str], Any]]:
    """The names that a package lists for type checkers only, and a ``__getattr__`` for them.

    The list is what the package imports under ``if TYPE_CHECKING``, and it is the only one.
    """
    homes = _listed(package)
    module_of = submodules(package)

    def getter(name: str) -> Any:
        home = homes.get(name, package)
        return module_of(name) if home == package else getattr(import_module(home), name)

    return sorted(homes), getter


def _listed(package: str) -> dict[str, str]:
    """The names that a package imports for type checkers, each with its module."""
    spec: Any = sys.modules[package].__spec__
    source = spec.loader.get_data(spec.origin)  # pytest's loader of plugins knows no get_source
    return {
        alias.name: str(statement.module)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """For packages that draw from Python's generator as they are imported: it is the user's."""
    before = random.getstate()
    try:
        yield
    finally:
        random.setstate(before)
