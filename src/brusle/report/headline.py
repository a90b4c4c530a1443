"""The result of a run in a few sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brusle.report.settings import FamilyReport
from brusle.report.wording import in_words, pixels


def strongest(families: Sequence[FamilyReport]) -> list[FamilyReport]:
    """For each goal the settings with the highest success rate."""
    return _best(families, minimal=False, key=lambda family: family.asr.value)


def sparsest(families: Sequence[FamilyReport]) -> list[FamilyReport]:
    """For each goal the search that does with the fewest pixels, in the median."""
    return _best(families, minimal=True, key=lambda family: -_median(family))


def results(families: Sequence[FamilyReport]) -> list[str]:
    """A sentence for each of these."""
    return [*map(_success, strongest(families)), *map(_needed, sparsest(families))]


def _best(
    families: Sequence[FamilyReport], minimal: bool, key: Callable[[FamilyReport], float]
) -> list[FamilyReport]:
    goals = dict.fromkeys(family.setting.goal for family in families)
    begun = [family for family in families if family.minimal is minimal and family.asr.count]
    ranked = [[family for family in begun if family.setting.goal == goal] for goal in goals]
    return [max(some, key=key) for some in ranked if some]


def _median(family: FamilyReport) -> float:
    """Mean over seeds of the median of pixels needed."""
    found = [seed.summary.needed for seed in family.seeds]
    medians = [needed.median.value for needed in found if needed]
    return sum(medians) / len(medians)


def _success(best: FamilyReport) -> str:
    setting, summary = best.setting, best.summary
    attack = f"{setting.attack} with {setting.pixels} pixels{_of_seed(best)}"
    if setting.goal == "targeted":
        won = in_words(summary.asr, "attacked pairs of image and target")
        return f"Targeted, {attack} was the strongest: it reached the target in {won}."
    won, left = in_words(summary.asr, "attacked images"), in_words(summary.robust, "images")
    return (
        f"Untargeted, {attack} was the strongest: it fooled the victim on {won}. To the end, "
        f"{left} are classified correctly."
    )


def _needed(best: FamilyReport) -> str:
    setting, summary, needed = best.setting, best.summary, best.summary.needed
    assert needed is not None
    limit = setting.pixels
    quartiles = (needed.lower.value, needed.median.value, needed.upper.value)
    lower, median, upper, low, high = (
        pixels(x, limit).replace(">", "more than")
        for x in (*quartiles, needed.median.low, needed.median.high)
    )
    what = "images" if setting.goal == "untargeted" else "pairs of image and target"
    return (
        f"{setting.goal.capitalize()}, {setting.attack}{_of_seed(best)} looked for the fewest "
        f"pixels: half of the {summary.attacked} attacked {what} need {median} (95 % interval "
        f"{low} to {high}), a quarter {lower}, three quarters {upper}; "
        f"{in_words(summary.asr, what)} need at most {limit}."
    )


def _of_seed(best: FamilyReport) -> str:
    return f" (here with seed {best.setting.seed})" if len(best.seeds) > 1 else ""
