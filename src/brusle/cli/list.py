"""``brusle list``."""

from __future__ import annotations

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
        from brusle.attacks import known_attacks

        return known_attacks()
    if kind == "victims":
        from brusle.victims import known_victims

        return known_victims()
    if kind == "data":
        from brusle.data import known_data

        return known_data()
    if kind == "defences":
        from brusle.defences import known_defences

        return known_defences()
    return _presets()


def _presets() -> dict[str, str]:
    from brusle.evaluation.paper.presets import presets

    return {name: f"{about.dataset}: {about.summary}" for name, about in presets().items()}
