"""Which settings of a run a gate is about."""

from __future__ import annotations

from collections.abc import Sequence

from brusle.errors import InputError
from brusle.evaluation.gating.questions import At, Gate
from brusle.evaluation.record import Setting
from brusle.evaluation.storing.finding import find_attack


def settings_at(gate: Gate, at: At, settings: Sequence[Setting], run: object) -> list[Setting]:
    """The settings that can say what became of images at a place; raises if there are none.

    Args:
        gate: the gate.
        at: one of its places.
        settings: those of the run.
        run: what the run is called, for messages.
    """
    called = list(settings)
    if gate.attack:
        name = find_attack(settings, gate.attack)
        called = [one for one in settings if one.attack == name]
    if not called:
        names = ", ".join(dict.fromkeys(one.attack for one in settings)) or "none"
        raise InputError(f"{run} holds no attack {gate.attack!r}: choose from {names}")
    exact = [one for one in called if one.pixels == at.pixels and not one.minimal]
    found = exact or [one for one in called if one.pixels >= at.pixels and one.minimal]
    if not found:
        budgets = sorted({f"{one.pixels}px" for one in called})
        raise InputError(
            f"{run} has no attack with {at.pixels} pixels: give --at with one of its budgets "
            f"({', '.join(budgets)}), or run it with --pixels {at.pixels}"
        )
    goals = {one.goal for one in found}
    goal = gate.goal or ("untargeted" if "untargeted" in goals else "targeted")
    if goal not in goals:
        raise InputError(f"{run} has no {goal} attack at {at}: give --goal {goals.pop()}")
    found = [one for one in found if one.goal == goal]
    for setting in found:
        _require_limit(setting, at, run)
    return found


def _require_limit(setting: Setting, at: At, run: object) -> None:
    """A search for the fewest pixels says what it has found in the end, and nothing before."""
    if at.queries is None:
        return
    if at.queries > setting.queries:
        raise InputError(
            f"{setting.title} of {run} had {setting.queries} queries, which says nothing about "
            f"{at.queries}: give --at {at.pixels}px,{setting.queries}q, or run it with --queries "
            f"{at.queries}"
        )
    if setting.minimal and at.queries < setting.queries:
        raise InputError(
            f"{setting.title} of {run} is a search for the fewest pixels, which spends all its "
            f"queries: give --at {at.pixels}px,{setting.queries}q"
        )
