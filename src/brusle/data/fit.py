"""Whether data and a victim belong together."""

from __future__ import annotations

import re

from brusle.data.sets import Source
from brusle.errors import InputError
from brusle.victim import Victim, check_shape, traits


def check_fit(data: Source, shape: tuple[int, ...], victim: Victim) -> None:
    """Raise if the victim cannot mean what the data means: other shape, or other classes."""
    known = traits(victim)
    check_shape(shape, victim, f"images of {data.name}")
    if not known.classes:
        return
    top = int(data.labels.max())
    if top >= len(known.classes):
        raise InputError(
            f"{data.name} has label {top}, but {victim.name} has {len(known.classes)} classes: "
            f"take data and victim that belong together"
        )
    present = [c for c in sorted(set(data.labels.tolist())) if c < len(data.classes)]
    differ = [c for c in present if _plain(data.classes[c]) != _plain(known.classes[c])]
    # a name or two may be spelled otherwise; most of them cannot
    if 2 * len(differ) > len(present):
        c = differ[0]
        raise InputError(
            f"class {c} is {data.classes[c]!r} in {data.name} but {known.classes[c]!r} for "
            f"{victim.name}: take data and victim that belong together"
        )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
