"""Victims from other people's code: a function of the user's, or an installed plugin."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from typing import Any

import torch
from torch import nn

from brusle.errors import InputError, VictimError
from brusle.foreign import foreign_code, load_plugin
from brusle.names import Name
from brusle.victim import Victim
from brusle.victims.adapting import adapt
from brusle.victims.wrappers import named


def from_python(name: Name, device: torch.device) -> Victim:
    """What ``package.module:factory`` returns; options are its keyword arguments."""
    module_name, _, factory_name = name.rest.partition(":")
    if not factory_name:
        raise InputError(f"{name.text!r} names no function: write python:package.module:factory")
    with _current_folder_first():
        module = _import(module_name, name)
        factory = getattr(module, factory_name, None)
        if not callable(factory):
            raise InputError(f"{module_name} has no function {factory_name}")
        with foreign_code(f"{name.text} failed", VictimError):
            result = factory(**name.take_all())
    return returned_victim(result, name.text, device)


def origin_of(name: Name) -> str:
    """Where the module that ``name`` asks for is, for a message; it is not imported."""
    package = name.rest.partition(":")[0].partition(".")[0]
    found = PathFinder.find_spec(package, [os.getcwd(), *sys.path])
    return f" (found in {found.origin})" if found and found.origin else ""


def from_plugin(point: EntryPoint, name: Name, device: torch.device) -> Victim:
    """What another package's loader returns for what stands behind the colon."""
    load = load_plugin(point, "the victim", VictimError)
    with foreign_code(f"{name.text} failed in {point.value}", VictimError):
        result = load(name.rest, device, **name.take_all())
    return returned_victim(result, name.text, device)


def returned_victim(result: Any, name: str, device: torch.device) -> Victim:
    """What foreign code returned, as a victim of the name that it was asked for by.

    A module goes to ``device``, victims stay where they are.
    """
    try:
        victim = adapt(result, str(device) if isinstance(result, nn.Module) else "auto")
    except InputError as error:
        raise VictimError(f"{name} returned something unusable: {error}") from error
    return named(victim, name)


def _import(module: str, name: Name) -> Any:
    with foreign_code(f"{name.text} failed", VictimError):
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if not error.name or not f"{module}.".startswith(f"{error.name}."):
                raise
            missing = error.name
    raise InputError(
        f"{name.text!r}: there is no module {missing} here or among the installed packages"
    )


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """Find modules beside the user, as ``python -m`` does; scripts of commands do not."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
