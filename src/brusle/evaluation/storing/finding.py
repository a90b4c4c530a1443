"""Attacks of a run by the names that people give them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from brusle.evaluation.record import Setting


def find_attack(settings: Sequence[Setting], name: str) -> str | None:
    """The attack that is called so, as in ``sparse-rs``, with or without its options."""
    attacks = list(dict.fromkeys(setting.attack for setting in settings))
    plain = {_plain(attack.split(" ")[0]): attack for attack in reversed(attacks)}
    return (plain | {_plain(attack): attack for attack in attacks}).get(_plain(name))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
