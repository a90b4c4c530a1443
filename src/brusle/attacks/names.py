"""Attacks by name, as the command line gives them: ``brusle:palette=uniform,colours=2``."""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import Any

from brusle.attacks.base import SparseAttack
from brusle.attacks.brusle import BruSLe
from brusle.errors import InputError

ATTACKS: dict[str, type[SparseAttack]] = {"brusle": BruSLe}
_WORDS: dict[str, Any] = {"true": True, "on": True, "false": False, "off": False, "none": None}


def make(spec: str, pixels: int, queries: int) -> SparseAttack:
    """Build the attack that ``spec`` describes.

    Args:
        spec: a name of `ATTACKS`, optionally with ``:option=value,option=value``.
        pixels: the pixel budget.
        queries: the query limit.
    """
    name, _, rest = spec.partition(":")
    if name not in ATTACKS:
        raise InputError(f"unknown attack {name!r}{_hint(name, ATTACKS)}")
    options = {"pixels": pixels, "queries": queries}
    known = [f.name for f in fields(ATTACKS[name]) if f.name not in options]
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if key not in known:
            raise InputError(f"{name} has no option {key!r}{_hint(key, known)}")
        if not equals:
            raise InputError(f"option {key!r} of {name} has no value: write {key}=VALUE")
        options[key] = _value(value)
    return ATTACKS[name](**options)


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _hint(wrong: str, known: Any) -> str:
    close = difflib.get_close_matches(wrong, list(known), n=1)
    return f": did you mean {close[0]!r}?" if close else f": known are {', '.join(known)}"
