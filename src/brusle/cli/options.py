"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
DEFAULT_VICTIM = "zoo:cifar10-resnet20"


def victim_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--victim`` and ``--device``."""
    options = (
        click.option(
            "--victim",
            default=DEFAULT_VICTIM,
            show_default=True,
            help="The classifier under test; see `brusle list victims`.",
        ),
        click.option(
            "--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, ..."
        ),
    )
    return _apply(options, command)


def search_options(queries: int) -> Decorator:
    """``--attack``, ``--queries``, ``--seed`` and ``--json``."""
    options = (
        click.option(
            "--attack",
            "spec",
            default="brusle",
            show_default=True,
            help="The attack, with options as in brusle:palette=uniform,colours=2; see `brusle "
            "list attacks`.",
        ),
        click.option(
            "--queries",
            type=click.IntRange(min=1),
            default=queries,
            show_default=True,
            help="Most queries per image.",
        ),
        click.option(
            "--seed", type=int, default=0, show_default=True, help="Same seed, same result."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    )
    return lambda command: _apply(options, command)


def _apply(options: tuple[Decorator, ...], command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command
