"""Numbers and names in words, the same in tables, pages and pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from brusle.evaluation.statistics import Estimate, Rate


def number(value: float, digits: int) -> str:
    """A number, or ``-`` if there is none."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def rounded(rate: Rate) -> str:
    """A share in percent; not quite all is not 100."""
    whole = f"{100 * rate.value:.0f}"
    return (
        f"{100 * rate.value:.1f}" if whole in ("0", "100") and rate.value not in (0, 1) else whole
    )


def in_words(rate: Rate, what: str) -> str:
    """``12 of 53 images (23 %, 95 % interval 13 to 36 %)``."""
    if not rate.count:
        return f"none of 0 {what}"
    low, high = (f"{100 * end:.0f}" for end in rate.interval)
    share = f"{rounded(rate)} %, 95 % interval {low} to {high} %"
    return f"{rate.hits} of {rate.count} {what} ({share})"


def listed(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def span(numbers: Iterable[int]) -> str:
    """``5``, or ``2 to 20``."""
    numbers = sorted(set(numbers))
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def pixels(number: float, limit: int) -> str:
    """Pixels needed: ``3``, ``> 40``, or ``-`` if nothing was attacked."""
    if math.isnan(number):
        return "-"
    return f"> {limit}" if number > limit else f"{number:.0f}"


def pixels_within(needed: Estimate, limit: int) -> str:
    """The same with its interval: ``3 [2, > 40]``."""
    value, low, high = (pixels(x, limit) for x in (needed.value, needed.low, needed.high))
    return value if value == "-" else f"{value} [{low}, {high}]"


def estimate(found: Estimate, neutral: float, form: str, scale: float = 1) -> str:
    """``+8.2* [+1.5, +14.9]``; the star says that the interval excludes ``neutral``."""
    value, low, high = (f"{scale * x:{form}}" for x in (found.value, found.low, found.high))
    return f"{value}{'*' if found.excludes(neutral) else ''} [{low}, {high}]"


def class_name(names: Sequence[str], label: int) -> str:
    """The name of a class, or its number where there is none."""
    return names[label] if 0 <= label < len(names) else f"class {label}"


def count(number: int, noun: str) -> str:
    """``1 pixel``, ``2 pixels``, ``2 queries``."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number} {noun if number == 1 else plural}"
