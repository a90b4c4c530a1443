"""Attacks by name, as the command line gives them: ``brusle:palette=uniform,colours=2``."""

from __future__ import annotations

from dataclasses import fields

from brusle.attacks.base import SparseAttack
from brusle.attacks.brusle import BruSLe
from brusle.errors import InputError
from brusle.names import hint, plain_value

ATTACKS: dict[str, type[SparseAttack]] = {"brusle": BruSLe}


def make(spec: str, pixels: int, queries: int) -> SparseAttack:
    """Build the attack that ``spec`` describes.

    Args:
        spec: a name of `ATTACKS`, optionally with ``:option=value,option=value``.
        pixels: the pixel budget.
        queries: the query limit.
    """
    name, _, rest = spec.partition(":")
    if name not in ATTACKS:
        raise InputError(f"unknown attack {name!r}{hint(name, ATTACKS)}")
    options = {"pixels": pixels, "queries": queries}
    known = [f.name for f in fields(ATTACKS[name]) if f.name not in options]
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if key not in known:
            raise InputError(f"{name} has no option {key!r}{hint(key, known)}")
        if not equals:
            raise InputError(f"option {key!r} of {name} has no value: write {key}=VALUE")
        options[key] = plain_value(value)
    return ATTACKS[name](**options)
