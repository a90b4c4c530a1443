"""Lines that commands print."""

from __future__ import annotations

import click

from brusle.text import shown


def say(text: str, err: bool = False, bold: bool = False, dim: bool = False) -> None:
    """Print a line; names in it are text, whatever is in them.

    Args:
        text: the line.
        err: to standard error.
        bold: as a heading.
        dim: as an aside.
    """
    click.secho(shown(text), err=err, bold=bold or None, dim=dim or None)
