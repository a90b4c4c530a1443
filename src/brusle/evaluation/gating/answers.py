"""What a gate has found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from brusle.evaluation.gating.questions import Condition

Result = Literal["pass", "fail", "undecided"]


@dataclass(frozen=True)
class Answer:
    """What was found about one condition; shares, not percent.

    Attributes:
        condition: what was asked.
        result: whether it holds.
        value: robust accuracy over the images whose fate is known; or by how much it has fallen.
            None without any.
        low: a lower bound that the true value is below no more often than is allowed.
        high: an upper bound, likewise.
        images: how many were looked at, until it was decided if they were looked at in turn.
        counts: robust and fooled; or, of a drop, lost and gained.
        unknown: images without a usable answer; they are in no share, but the bounds hold whatever
            they are.
        in_turn: images were looked at one after the other, and the bounds allow for that.
        needed: about how many images would decide if their shares stayed as they are; None if it is
            decided, or nobody can say.
        about: the attacks whose rows were read.
    """

    condition: Condition
    result: Result
    value: float | None
    low: float
    high: float
    images: int
    counts: tuple[int, int]
    unknown: int
    in_turn: bool
    needed: int | None
    about: tuple[str, ...]

    @property
    def measured(self) -> str:
        """The numbers in one line."""
        if not self.images:
            return "no image was attacked: so few could not decide"
        if self.value is None:
            return f"no image of {self.images} has a usable answer"
        first, second = self.counts
        unknown = f", {self.unknown} unknown" if self.unknown else ""
        if self.condition.max_drop is not None:
            seen = f"{first} lost and {second} gained of {self.images} images{unknown}"
            ends = f"{100 * self.low:.1f} and {100 * self.high:.1f}"
            return f"{seen}: fell by {100 * self.value:.1f} points, bounds {ends}"
        known = first + second
        seen = f"{first} of {known} {'image is' if known == 1 else 'images are'} robust{unknown}"
        ends = f"{100 * self.low:.1f} and {100 * self.high:.1f} %"
        return f"{seen}: {100 * self.value:.1f} %, bounds {ends}"

    @property
    def advice(self) -> str:
        """What would decide; empty if it is decided."""
        if self.result != "undecided":
            return ""
        if self.needed is not None and self.needed <= self.images:
            return "the images without a usable answer could turn it: run them again"
        if self.value is None:
            return "too few images to tell"
        if self.needed is None:
            return "too few images to tell, and too near to say how many it takes"
        return f"too few images to tell: about {self.needed} would, if the shares stay as they are"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = {name: value for name, value in vars(self).items() if name != "condition"}
        asked = {**vars(self.condition), "at": str(self.condition.at)}
        return {"asked": self.condition.title, **asked, **values, "told": self.measured}


@dataclass(frozen=True)
class Verdict:
    """What a gate has found.

    Attributes:
        run: the run folder.
        victim: its victim.
        data: its data.
        baseline: the run folder that it was compared with; empty without one.
        confidence: in percent.
        answers: about each condition.
        cautions: what else to know of the runs.
    """

    run: str
    victim: str
    data: str
    baseline: str
    confidence: float
    answers: tuple[Answer, ...]
    cautions: tuple[str, ...] = ()

    @property
    def result(self) -> Result:
        """It passes if all conditions hold, and fails if one surely does not."""
        return together([answer.result for answer in self.answers])

    @property
    def text(self) -> str:
        """In one line."""
        said = {
            "pass": "passes",
            "fail": "fails",
            "undecided": "cannot be decided: too few images to tell",
        }
        return f"the gate {said[self.result]} ({self.confidence:g} % confidence)"

    def lines(self) -> list[str]:
        """For people, the conclusion last."""
        found = []
        for answer in self.answers:
            found.append(f"{answer.result:<9} {answer.condition.title}")
            found += [f"{'':<9} {text}" for text in (answer.measured, answer.advice) if text]
            turns = ", looked at in turn" if answer.in_turn else ""
            found.append(f"{'':<9} {', '.join(answer.about)}{turns}")
        return [*found, *(f"caution   {text}" for text in self.cautions), self.text]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "result": self.result,
            **vars(self),
            "answers": [answer.as_dict() for answer in self.answers],
        }


def together(results: Sequence[Result]) -> Result:
    """What follows from the results of all conditions."""
    if "fail" in results:
        return "fail"
    return "undecided" if "undecided" in results else "pass"
