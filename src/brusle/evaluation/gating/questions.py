"""What a gate asks for: conditions, each at a pixel budget and a number of queries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from brusle.errors import InputError
from brusle.evaluation.record import GoalName
from brusle.text import brief

_AT = re.compile(r"(\d{1,9}) ?px(?:, ?(\d{1,9}) ?q)?")


@dataclass(frozen=True)
class At:
    """Within how many changed pixels and queries an image must be fooled to count as fooled.

    Attributes:
        pixels: a pixel budget of the run.
        queries: a number of queries; None is the limit of the run.
    """

    pixels: int
    queries: int | None = None

    def __post_init__(self) -> None:
        if self.pixels < 1 or (self.queries is not None and self.queries < 1):
            raise InputError(f"{self} has fewer than 1 pixel or query: give at least 1 of each")

    @classmethod
    def parse(cls, text: str) -> At:
        """``5px,300q``, or ``5px`` for the query limit of the run."""
        found = _AT.fullmatch(text.strip())
        if found is None:
            raise InputError(
                f"{brief(text)} does not say where to measure: give pixels and queries as in "
                f"5px,300q"
            )
        return cls(int(found[1]), None if found[2] is None else int(found[2]))

    def __str__(self) -> str:
        return f"{self.pixels}px" + ("" if self.queries is None else f",{self.queries}q")


@dataclass(frozen=True)
class Condition:
    """One thing that must hold.

    Attributes:
        at: where.
        min_robust: the robust accuracy must be at least so many percent; None if this is about a
            drop.
        max_drop: it must not be more than so many points below that of the baseline.
    """

    at: At
    min_robust: float | None = None
    max_drop: float | None = None

    @property
    def title(self) -> str:
        """For people."""
        if self.min_robust is not None:
            return f"robust accuracy of at least {self.min_robust:g} % at {self.at}"
        return f"robust accuracy at most {self.max_drop:g} points below the baseline at {self.at}"


@dataclass(frozen=True)
class Gate:
    """What is asked of a run; all conditions must hold.

    Attributes:
        at: where; one or several.
        min_robust: percent for all of ``at``, or for each; empty if only a drop matters.
        max_drop: most points that it may be below a baseline; None if there is no baseline.
        confidence: percent: how surely a verdict is not wrong.
        attack: only rows of this attack; empty takes all, and an image is robust if none fooled it.
        goal: only attacks with this goal; None is untargeted, if the run has such attacks there.
    """

    at: tuple[At, ...]
    min_robust: tuple[float, ...] = ()
    max_drop: float | None = None
    confidence: float = 95.0
    attack: str = ""
    goal: GoalName | None = None

    @classmethod
    def of(
        cls,
        at: str | At | Sequence[str | At],
        min_robust: float | Sequence[float] | None = None,
        max_drop: float | None = None,
        **others: Any,
    ) -> Gate:
        """A gate of one thing or several; places may be texts."""
        places = [at] if isinstance(at, str | At) else at
        least = [min_robust] if isinstance(min_robust, int | float) else min_robust or ()
        parsed = tuple(place if isinstance(place, At) else At.parse(place) for place in places)
        return cls(parsed, tuple(map(float, least)), max_drop, **others)

    def __post_init__(self) -> None:
        if not self.at:
            raise InputError("the gate says not where to measure: give --at, as in 5px,300q")
        if not self.min_robust and self.max_drop is None:
            raise InputError(
                "the gate asks for nothing: give --min-robust, or --baseline and --max-drop"
            )
        if len(self.min_robust) not in (0, 1, len(self.at)):
            raise InputError(
                f"{len(self.min_robust)} --min-robust for {len(self.at)} --at: give one for all, "
                f"or one for each in the same order"
            )
        for percent in self.min_robust:
            if not 0 < percent < 100:  # also NaN
                raise InputError(
                    f"--min-robust is {percent:g}: give a number between 0 and 100, both excluded; "
                    f"no number of images shows that there is no exception"
                )
        if self.max_drop is not None and not 0 <= self.max_drop < 100:
            raise InputError(f"--max-drop is {self.max_drop:g}: give points, from 0 to below 100")
        if not 50 < self.confidence < 100:
            raise InputError(
                f"--confidence is {self.confidence:g}: give percent between 50 and 100, as in 95"
            )

    @property
    def conditions(self) -> list[Condition]:
        """All that must hold."""
        least = self.min_robust * (len(self.at) if len(self.min_robust) == 1 else 1)
        found = [Condition(at, percent) for at, percent in zip(self.at, least, strict=False)]
        if self.max_drop is not None:
            found += [Condition(at, max_drop=self.max_drop) for at in self.at]
        return list(dict.fromkeys(found))

    @property
    def alphas(self) -> tuple[float, float]:
        """How often a verdict on one condition may be a false pass, and a false failure.

        The gate passes if all conditions do, so that one that does not hold must pass, too: nothing
        is to be corrected. It fails if any does, so failures share what is allowed.
        """
        wrong = 1 - self.confidence / 100
        return wrong, wrong / len(self.conditions)

    def told(self) -> list[str]:
        """The conditions for people, with the confidence."""
        return [f"{one.title}, {self.confidence:g} % confidence" for one in self.conditions]
