"""``brusle victim``."""

from __future__ import annotations

from pathlib import Path

import click

from brusle.cli.output import say


@click.group(invoke_without_command=False)
def command() -> None:
    """Describe a service that brusle knows no format of."""


@command.command("init")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def init(file: Path) -> None:
    """Write a commented request template to FILE.yaml.

    It says how an image is sent to a service and where labels and scores are in its answer. Edit
    it, try it with `brusle check --victim rest:FILE.yaml`, which sends one image and shows request,
    response and what was understood, and attack it with `brusle evaluate --victim rest:FILE.yaml`.
    """
    from brusle.errors import InputError
    from brusle.files import write_text
    from brusle.names import require_ending
    from brusle.victims.remote.template import template

    require_ending(file, [".yaml", ".yml"])
    if file.exists():
        raise InputError(f"{file} exists already: choose another name, or remove it")
    write_text(file, template())
    say(f"written to {file}; edit it, then try it: brusle check --victim rest:{file}")
