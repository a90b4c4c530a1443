"""What the lines of a comparison say together, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from brusle.evaluation.statistics import Comparison, Estimate, Match, compare_matches


@dataclass(frozen=True)
class Verdict:
    """All lines of a kind together, in a sentence.

    Attributes:
        text: the sentence.
        found: the comparison over all their pairs.
        better: lines in which the other side is better beyond doubt (its interval says so): it
            succeeds more often, or needs fewer pixels.
        worse: the same the other way round.
        lines: how many lines there are.
    """

    text: str
    found: Comparison
    better: int
    worse: int
    lines: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Compared:
    """A line that could be compared, with the rows that it was made of.

    Attributes:
        found: its comparison.
        matches: its rows.
        minimal: whether these are searches for the fewest pixels.
    """

    found: Comparison
    matches: Sequence[Match]
    minimal: bool

    @property
    def sign(self) -> int:
        """1 if the other side is better beyond doubt, -1 if it is worse, 0 if nobody can tell."""
        if self.minimal:
            return -_direction(self.found.excess)
        return _direction(self.found.difference)


@dataclass(frozen=True)
class Words:
    """How a verdict calls its sides: ``A succeeds more often than B``."""

    other: str
    baseline: str
    succeeds: str
    needs: str
    where: str = ""


def verdicts_on(lines: Sequence[Compared], words: Words) -> list[Verdict]:
    """One verdict on attacks with a pixel budget, and one on searches for the fewest pixels.

    Args:
        lines: what was compared; there is no verdict of a kind that is not among them.
        words: what the sides are called.
    """
    verdicts = []
    for minimal in (False, True):
        some = [line for line in lines if line.minimal is minimal]
        if not some:
            continue
        found = some[0].found
        if len(some) > 1:
            found = compare_matches([match for line in some for match in line.matches])
        signs = [line.sign for line in some]
        better, worse = signs.count(1), signs.count(-1)
        text = _on_pixels(found, words) if minimal else _on_success(found, words)
        if len(some) > 1:
            more, less = ("fewer pixels", "more") if minimal else ("success is higher", "lower")
            text += f"; {more} in {better} of {len(some)} settings, {less} in {worse or 'none'}"
        verdicts.append(Verdict(f"{text}.", found, better, worse, len(some)))
    return verdicts


def _direction(change: Estimate) -> int:
    """Whether the interval lies above (1) or below 0 (-1), or holds it (0)."""
    if not change.excludes(0):
        return 0
    return 1 if change.value > 0 else -1


def _on_success(found: Comparison, words: Words) -> str:
    points = _interval(found.difference, "+.1f", 100, " points")
    queries = _interval(found.ratio, ".2f", 1, " times the queries")
    than = f"than {words.where}{words.baseline}"
    if found.difference.excludes(0):
        often = "more" if found.difference.value > 0 else "less"
        return f"{words.succeeds} {often} often {than}: {points}, with {queries}"
    if found.ratio.excludes(1):
        many = "fewer" if found.ratio.value < 1 else "more"
        return (
            f"{words.needs} {many} queries {than}: {queries}; success rates cannot be told apart: "
            f"{points}"
        )
    return f"{words.other} and {words.baseline} cannot be told apart: {points}, {queries}"


def _on_pixels(found: Comparison, words: Words) -> str:
    times = _interval(found.ratio, ".2f", 1, " times the pixels")
    pixels = _interval(found.excess, "+.1f", 1, " in the mean")
    if not found.excess.excludes(0):
        pair = f"{words.other} or {words.baseline}"
        return f"Whether {pair} needs fewer pixels cannot be told: {times}, {pixels}"
    many = "fewer" if found.excess.value < 0 else "more"
    return f"{words.needs} {many} pixels than {words.where}{words.baseline}: {times}, {pixels}"


def _interval(found: Estimate, form: str, scale: float, unit: str) -> str:
    """``+7.1 points [+3.2, +11.0]``."""
    value, low, high = (f"{scale * x:{form}}" for x in (found.value, found.low, found.high))
    return f"{value}{unit} [{low}, {high}]"
