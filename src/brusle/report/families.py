"""Settings that differ in their seed alone: what they are called, and what belongs together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from brusle.evaluation.record import Setting


@dataclass(frozen=True)
class Family:
    """Settings that differ in their seed alone.

    Attributes:
        settings: one for each seed.
        limited: whether others differ from them in the query limit alone.
    """

    settings: tuple[Setting, ...]
    limited: bool = False

    @property
    def first(self) -> Setting:
        """The one that speaks for all in what does not depend on the seed."""
        return self.settings[0]

    @property
    def name(self) -> str:
        """The attack, without a seed."""
        return self.first.attack + self._eot

    @property
    def budget(self) -> str:
        """Pixels, and queries where they matter."""
        limit = f", {self.first.queries} queries" if self.limited else ""
        return f"{self.first.pixels} px{limit}"

    @property
    def title(self) -> str:
        """Attack, goal and budget, without a seed."""
        return f"{self.first.attack} {self.first.goal}, {self.budget}{self._eot}"

    @property
    def _eot(self) -> str:
        return f", eot {self.first.eot}" if self.first.eot > 1 else ""


def families(settings: Iterable[Setting]) -> list[Family]:
    """Put together what differs in the seed alone; query limits of an attack follow each other."""
    limits: dict[tuple[object, ...], dict[int, list[Setting]]] = {}
    for setting in settings:
        alike = (setting.attack, setting.goal, setting.pixels, setting.eot, setting.minimal)
        limits.setdefault(alike, {}).setdefault(setting.queries, []).append(setting)
    return [
        Family(tuple(seeds), len(by_limit) > 1)
        for by_limit in limits.values()
        for seeds in by_limit.values()
    ]
