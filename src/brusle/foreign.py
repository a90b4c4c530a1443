"""Code of others that makes what a name asks for: installed plugins, and the user's own functions.

It is not trusted to end well: whatever it raises becomes one line, and it cannot end the program.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from brusle.calls import same_folder
from brusle.errors import BrusleError, first_line
from brusle.leaving import no_hard_exit

_NOT_THEIRS = (str(Path(__file__).parent), str(Path(importlib.__file__).parent), "<frozen")


@contextmanager
def foreign_code(failure: str, error_type: type[BrusleError]) -> Iterator[None]:
    """Whatever is raised here is a failure of foreign code, also an attempt to end the program.

    Args:
        failure: the beginning of the message.
        error_type: what is raised.
    """
    try:
        with no_hard_exit(), same_folder():
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise error_type(f"{failure}: {_cause(error)}") from error


@contextmanager
def quiet(package: Any) -> Iterator[None]:
    """A package of Hugging Face without its bars and reports; what matters of them is told."""
    log = package.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(log.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def load_plugin(point: EntryPoint, what: str, error_type: type[BrusleError]) -> Callable[..., Any]:
    """What another package offers under an entry point.

    Args:
        point: the entry point.
        what: a victim, data, a defence or an attack, for the message.
        error_type: what is raised if it cannot be had.
    """
    plugin = f"the plugin {point.value} for {what} {point.name!r}"
    with foreign_code(f"{plugin} cannot be loaded, install its package again", error_type):
        factory: Callable[..., Any] = point.load()
    return factory


def _cause(error: BaseException) -> str:
    """Type, message and the line of the foreign code at which an error arose."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
    if isinstance(error, BrusleError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        frame
        for frame in frames
        if not frame.filename.startswith(_NOT_THEIRS) and "site-packages" not in frame.filename
    ]
    where = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
    return first_line(error) + where
