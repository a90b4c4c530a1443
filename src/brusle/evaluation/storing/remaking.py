"""The attack of a stored setting, made again: what it would draw can be drawn once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brusle.attacks import ATTACKS, Minimal, Restarts, SparseAttack
from brusle.errors import BrusleError
from brusle.evaluation.record import Setting

_KINDS = {kind.__name__: kind for kind in ATTACKS.values()}


def remade(setting: Setting) -> SparseAttack | Restarts | Minimal | None:
    """The attack of a setting; None if it is not one of brusle's, or has options of another time.

    Attacks of others are not looked for: a stored name must not run their code.
    """
    try:
        return _made(setting.kind, setting.model_dump())
    except (BrusleError, TypeError, ValueError, LookupError):  # whatever a folder may say
        return None


def _made(kind: str, said: Mapping[str, Any]) -> SparseAttack | Restarts | Minimal | None:
    options = dict(said["options"])
    if kind in ("Restarts", "Minimal"):
        inner = options.pop("attack")
        attack = _made(inner["kind"], inner)
        if not isinstance(attack, SparseAttack):
            return None
        return Restarts(attack, **options) if kind == "Restarts" else Minimal(attack, **options)
    if kind not in _KINDS:
        return None
    return _KINDS[kind](pixels=said["pixels"], queries=said["queries"], **options)
