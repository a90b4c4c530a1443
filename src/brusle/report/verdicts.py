"""What the lines of a comparison say together, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from brusle.evaluation.statistics import Comparison, Estimate, compare_matches
from brusle.report.lines import ComparedRows, Line


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
class Words:
    """How a verdict calls its sides: ``A succeeds more often than B``."""

    other: str
    baseline: str
    succeeds: str
    needs: str
    where: str = ""


def verdicts_on(compared: Sequence[ComparedRows], words: Words) -> list[Verdict]:
    """One verdict on attacks with a pixel budget, and one on searches for the fewest pixels.

    Args:
        compared: lines; there is no verdict of a kind that is not among them, nor on those that
            could not be compared.
        words: what the sides are called.
    """
    verdicts = []
    for minimal in (False, True):
        some = [
            one for one in compared if one.line.found is not None and one.line.minimal is minimal
        ]
        if some:
            verdicts.append(_verdict(some, minimal, words))
    return verdicts


def _verdict(compared: Sequence[ComparedRows], minimal: bool, words: Words) -> Verdict:
    """What lines of a kind say together; all their pairs count."""
    found = compared[0].line.found  # of a single line: no need to draw again
    if found is None or len(compared) > 1:
        found = compare_matches([match for one in compared for match in one.matches])
    signs = [_sign(one.line) for one in compared]
    better, worse, count = signs.count(1), signs.count(-1), len(compared)
    text = _on_pixels(found, words) if minimal else _on_success(found, words)
    if count > 1:
        more, less = ("fewer pixels", "more") if minimal else ("success is higher", "lower")
        text += f"; {more} in {better} of {count} settings, {less} in {worse or 'none'}"
    return Verdict(f"{text}.", found, better, worse, count)


def _sign(line: Line) -> int:
    """1 if the other side is better beyond doubt, -1 if it is worse, 0 if nobody can tell."""
    assert line.found is not None
    return -_direction(line.found.excess) if line.minimal else _direction(line.found.difference)


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
