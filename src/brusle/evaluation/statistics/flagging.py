"""Reasons to doubt numbers; docs/metrics.md says when each is raised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from brusle.evaluation.record import Row
from brusle.evaluation.statistics.comparing import (
    FEWEST_IMAGES,
    clearly_ahead,
    discordant,
    matched,
)
from brusle.evaluation.statistics.costs import check_limit
from brusle.evaluation.statistics.counting import attacked, stable_rate, success_rate
from brusle.evaluation.statistics.rates import Rate

_RISE, _GAP = 0.02, 0.05  # what the flags "not-converged" and "randomised" tolerate


@dataclass(frozen=True)
class Flag:
    """A warning to readers of the numbers; docs/metrics.md says when it is raised."""

    name: str
    text: str


def flags(
    rows: Sequence[Row], limit: int, white_box: Sequence[Row] = (), minimal: bool = False
) -> list[Flag]:
    """Reasons to doubt the numbers of ``rows``.

    Args:
        rows: rows of an attack.
        limit: its query limit.
        white_box: rows of a white-box attack with the same pixel budget, if ``rows`` are those of
            a black-box attack.
        minimal: the attack searches for the fewest pixels: it spends all queries, so that they do
            not say whether it has converged.
    """
    found = (
        None if minimal else _not_converged(rows, limit),
        _randomised(rows),
        _beats_white_box(rows, white_box),
        _errors(rows),
    )
    return [flag for flag in found if flag is not None]


def _not_converged(rows: Sequence[Row], limit: int) -> Flag | None:
    check_limit(limit)
    half, whole = success_rate(rows, limit // 2), success_rate(rows, limit)
    rise = Rate(whole.hits - half.hits, whole.count)
    if rise.interval[0] <= _RISE or whole.hits == whole.count:  # nothing is left to be raised
        return None
    return Flag(
        "not-converged",
        f"the success rate rose from {half.value:.1%} at {limit // 2} queries to "
        f"{whole.value:.1%} at {limit}: more queries would probably raise it further",
    )


def _randomised(rows: Sequence[Row]) -> Flag | None:
    hit, stable = success_rate(rows), stable_rate(rows)
    if Rate(hit.hits - stable.hits, hit.count).interval[0] <= _GAP:
        return None
    return Flag(
        "randomised",
        f"{hit.value:.1%} were fooled once, but only {stable.value:.1%} in most of several "
        f"answers: the rest were lucky draws of a randomised victim",
    )


def _beats_white_box(black: Sequence[Row], white: Sequence[Row]) -> Flag | None:
    pairs = matched(attacked(black), attacked(white))
    if len({row.image for row, _ in pairs}) < FEWEST_IMAGES:
        return None
    most = max(row.queries for pair in pairs for row in pair)
    if not clearly_ahead(black, white, most):
        return None
    wins, losses = discordant(pairs, most)
    return Flag(
        "black-box-beats-white-box",
        f"of {len(pairs)} images, the black-box attack fooled {wins} that the white-box attack "
        f"did not, and {losses} the other way round: gradients are masked, or the white-box "
        f"attack is weak",
    )


def _errors(rows: Sequence[Row]) -> Flag | None:
    statuses = Counter(row.status for row in rows)
    errors, unverified = statuses["error"], statuses["unverified"]
    if not errors + unverified:
        return None
    return Flag(
        "errors",
        f"of {len(rows)} images, the victim failed on {errors}, which are left out, and "
        f"{unverified} reported successes did not pass the check and do not count",
    )
