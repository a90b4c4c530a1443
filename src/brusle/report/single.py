"""What became of an attack on one image: in a line, and for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brusle.outcomes import FAULTY
from brusle.report.wording import class_name, count
from brusle.results import AttackResult


def told(result: AttackResult, names: Sequence[str], where: str = "") -> str:
    """What became of the first image, in a line.

    Args:
        result: of the attack.
        names: of the classes.
        where: what became of an adversarial image.
    """
    before, after = before_and_after(result, names)
    if not result.success[0]:
        return _why_not(result, before, class_name(names, int(result.problems.labels[0])))
    held = "verified"
    if result.randomised:
        held = "stable" if result.stable[0] else "a first hit that is not stable"
    ends = f"{held}, {where}" if where else held
    return f"{before} -> {after}: {effort(result, ' changed')}; {ends}"


def facts(result: AttackResult, names: Sequence[str]) -> dict[str, Any]:
    """The same for JSON."""
    before, after = before_and_after(result, names)
    return {
        "status": result.status[0],
        "stable": bool(result.stable[0]),
        "error": result.errors.get(0),
        "before": before,
        "after": after,
        "pixels": int(result.pixels[0]),
        "queries": int(result.queries[0]),
        "ledger": result.ledger.row(0),
    }


def before_and_after(result: AttackResult, names: Sequence[str]) -> tuple[str, str]:
    """What the victim sees in the clean image, and in what the attack returned."""
    labels = (result.clean_labels, result.labels)
    before, after = (class_name(names, int(mine[0])) for mine in labels)
    return before, after


def effort(result: AttackResult, changed: str = "") -> str:
    """``3 pixels, 120 queries``; what the pixels are may stand behind them."""
    pixels, queries = int(result.pixels[0]), int(result.queries[0])
    return f"{count(pixels, 'pixel')}{changed}, {count(queries, 'query')}"


def _why_not(result: AttackResult, seen: str, truth: str) -> str:
    if result.status[0] == "skipped":
        return f"not attacked: the victim sees {seen}, which is not the given label {truth}"
    if result.status[0] in FAULTY:
        return f"{result.status[0]}: {result.errors[0]}"
    limit = f"{result.attack.pixels} pixels and {result.attack.queries} queries"
    return f"still {seen}: no adversarial image found within {limit}"
