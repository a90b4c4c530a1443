"""What the numbers of a setting are called in trackers, whatever the attack is called.

A key depends on the setting alone, so that it is the same in all runs that have the setting and
they can be drawn in one chart.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

from brusle.evaluation.record import Setting

_LONGEST = 80  # of a part; trackers take 250 letters in all
_DIGITS = 8


def prefixes(settings: Sequence[Setting]) -> dict[int, str]:
    """For the number of each setting what its keys begin with, as ``BruSLe/untargeted/5px/500q``.

    Settings that would be called the same, also where capitals do not count, get a hash each.
    """
    plain = {setting.number: _prefix(setting) for setting in settings}
    often = Counter(prefix.casefold() for prefix in plain.values())
    return {
        setting.number: f"{prefix}/{_digest(setting.key)}"
        if often[prefix.casefold()] > 1
        else prefix
        for setting, prefix in zip(settings, plain.values(), strict=True)
    }


def word(text: str) -> str:
    """A part of a key for something that is called ``text``.

    Letters and digits of ASCII stay, and ``.``, ``_`` and ``-`` between them. What loses something
    gets a hash of the whole, so that different names stay different.
    """
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:_LONGEST].strip(".-")
    return kept if kept and kept == text else f"{kept or 'attack'}-{_digest(text)}"


def _prefix(setting: Setting) -> str:
    parts = [word(setting.attack), setting.goal, f"{setting.pixels}px", f"{setting.queries}q"]
    if setting.eot > 1:
        parts.append(f"eot{setting.eot}")
    if setting.success != "top1":
        parts.append(f"success-{setting.success}")
    if setting.seed:
        parts.append(f"seed{setting.seed}")
    return "/".join(parts)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
