"""``brusle list``."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import click

from brusle.cli.output import json_option, print_json, say

KINDS = ("attacks", "victims", "data", "defences", "presets")


@click.command()
@click.argument("kinds", nargs=-1, type=click.Choice(KINDS))
@json_option("Print as JSON.")
def command(kinds: tuple[str, ...], as_json: bool) -> None:
    """List attacks, victims, data, defences and presets by their names."""
    lists = {kind: _names(kind) for kind in kinds or KINDS}
    if as_json:
        print_json(lists)
        return
    for kind, names in lists.items():
        say(kind, bold=True)
        width = max(map(len, names))
        for name, summary in names.items():
            say(f"  {name:{width}}  {summary}")


def _names(kind: str) -> dict[str, str]:
    if kind == "attacks":
        return _attacks()
    if kind == "victims":
        from brusle.victims import known_victims

        return known_victims()
    if kind == "defences":
        from brusle.defences import known_defences

        return known_defences()
    if kind == "presets":
        return _presets()
    from brusle.data import known_data

    return known_data()


def _presets() -> dict[str, str]:
    from brusle.evaluation.paper.presets import presets

    return {name: f"{about.dataset}: {about.summary}" for name, about in presets().items()}


def _attacks() -> dict[str, str]:
    from dataclasses import fields
    from inspect import getmodule
    from typing import get_type_hints

    from brusle.attacks import ATTACKS

    lines = {}
    for name, attack in ATTACKS.items():
        kinds = get_type_hints(attack)
        options = [
            f"{f.name}={f.default}{_others(kinds[f.name], f.default)}"
            for f in fields(attack)
            if f.name not in ("pixels", "queries")
        ]
        text = ", ".join(options)
        about = (getattr(getmodule(attack), "__doc__", "") or "").splitlines()[0]  # cites the paper
        lines[name] = f"{about} Needs {attack(pixels=1).behaviour.needs}. Options: {text}"
    return lines


def _others(kind: Any, default: object) -> str:
    """The other values of an option that has a few, as `` (or uniform, gaussian)``."""
    if get_origin(kind) is not Literal:
        return ""
    return f" (or {', '.join(value for value in get_args(kind) if value != default)})"
