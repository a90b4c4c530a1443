"""What commands print: lines for people, and text for programs that nothing else gets in between.

A victim, a plugin or a library may print, too, also in C code or in a process of its own. From
`claim_stdout` on, all of that goes to standard error; `print_json` and `print_text` go to the
standard output that the user sees.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import click

from brusle.text import shown

_claimed: list[TextIO] = []


def say(text: str, err: bool = False, bold: bool = False, dim: bool = False) -> None:
    """Print a line for people; names in it are text, whatever is in them.

    Args:
        text: the line.
        err: to standard error.
        bold: as a heading.
        dim: as an aside.
    """
    click.secho(shown(text), err=err, bold=bold or None, dim=dim or None)


def json_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--json``; with it, standard output is for `print_json` alone."""
    return readable_option("--json", "as_json", help_text)


def readable_option(
    flag: str, variable: str, help_text: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A flag that makes the output one for programs."""

    def claim(context: click.Context, parameter: click.Parameter, given: bool) -> bool:
        if given and not _claimed:
            context.find_root().with_resource(claim_stdout())
        return given

    return click.option(flag, variable, is_flag=True, is_eager=True, callback=claim, help=help_text)


def print_json(value: Any, indent: int | None = 2) -> None:
    """Print for programs."""
    print_text(json.dumps(value, indent=indent))


def print_text(text: str) -> None:
    """Print to the user's standard output, also after `claim_stdout`."""
    click.echo(text, file=_claimed[-1] if _claimed else None)


@contextmanager
def claim_stdout() -> Iterator[None]:
    """Standard output is for `print_text`; whatever others write there goes to standard error."""
    before = sys.stdout
    with suppress(AttributeError):  # there may be none
        before.flush()
    descriptor = _descriptor(before)
    ours = before
    if descriptor is not None:
        ours = os.fdopen(os.dup(descriptor), "w", encoding=before.encoding, errors=before.errors)
        _point(descriptor)
    _claimed.append(ours)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        _claimed.pop()
        sys.stdout = before
        if descriptor is not None:
            with suppress(OSError):  # whoever read it has left
                ours.flush()
            os.dup2(ours.fileno(), descriptor)
            with suppress(OSError):
                ours.close()


def _descriptor(stream: Any) -> int | None:
    """The number under which the system knows a stream; None if it does not."""
    try:
        number: int = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return number


def _point(descriptor: int) -> None:
    """Make what is written to ``descriptor`` go to standard error, or nowhere if that is closed."""
    try:
        os.dup2(2, descriptor)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
