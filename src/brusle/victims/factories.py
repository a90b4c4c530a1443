"""Victims from other people's code: a function of the user's, or an installed plugin."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from typing import Any

import torch
from torch import nn

from brusle.calls import same_folder
from brusle.errors import BrusleError, InputError, VictimError, first_line
from brusle.leaving import no_hard_exit
from brusle.names import Name, plain_value
from brusle.victim import Victim
from brusle.victims.registry import as_victim
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
        with _own_code(f"{name.text} failed"):
            result = factory(**_options(name))
    return _victim(result, name, device)


def place_of(name: Name) -> str:
    """Where the module that ``name`` asks for is, for a message; it is not imported."""
    package = name.rest.partition(":")[0].partition(".")[0]
    found = PathFinder.find_spec(package, [os.getcwd(), *sys.path])
    return f" (found in {found.origin})" if found and found.origin else ""


def from_plugin(name: Name, device: torch.device, point: EntryPoint) -> Victim:
    """What another package's loader returns for what stands behind the colon."""
    with _own_code(f"{name.text} failed in {point.value}"):
        result = point.load()(name.rest, device, **_options(name))
    return _victim(result, name, device)


def _victim(result: Any, name: Name, device: torch.device) -> Victim:
    """A module goes to ``device``, victims stay; either gets the name that it was asked for by."""
    try:
        victim = as_victim(result, str(device) if isinstance(result, nn.Module) else "auto")
    except InputError as error:
        raise VictimError(f"{name.text} returned something unusable: {error}") from error
    return named(victim, name.text)


def _options(name: Name) -> dict[str, Any]:
    return {option: plain_value(text) for option, text in name.options.items()}


def _import(module: str, name: Name) -> Any:
    with _own_code(f"{name.text} failed"):
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
def _own_code(failure: str) -> Iterator[None]:
    """Whatever is raised here is the victim's failure, also an attempt to end the program."""
    try:
        with no_hard_exit(), same_folder():
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise VictimError(f"{failure}: {_told(error)}") from error


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """Find modules beside the user, as ``python -m`` does; scripts of commands do not."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _told(error: BaseException) -> str:
    """Type, message and the line of the caller's code at which an error arose."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
    if isinstance(error, BrusleError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    ours = (__file__, import_module.__code__.co_filename, "<frozen")
    own = [
        f for f in frames if not f.filename.startswith(ours) and "site-packages" not in f.filename
    ]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return first_line(error) + where
