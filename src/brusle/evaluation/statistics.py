"""Numbers from stored rows: curves, costs, comparisons, and warnings about them.

All functions take rows of one setting (an attack with its budgets on one victim), and count as
docs/metrics.md says: errors are in no denominator, unverified results in all denominators and in no
numerator. Where a limit is lower than the one that an attack ran with, a success after more
queries is a failure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brusle.errors import InputError
from brusle.evaluation.metrics import Z95, Rate, or_none
from brusle.evaluation.store import Row

FEWEST_IMAGES = 10  # with fewer, a resampled set of images says nothing
_RESAMPLES = 4000
_RISE, _GAP = 0.02, 0.05  # what the flags "not-converged" and "randomised" tolerate


@dataclass(frozen=True)
class Cost:
    """Queries of so many attacks; mean and median of none are NaN."""

    mean: float
    median: float
    count: int


@dataclass(frozen=True)
class Summary:
    """One line of a table.

    Attributes:
        images: rows; an image with several targets has several.
        attacked: those that were classified correctly and without error.
        asr: successes over attacked (the paper's attack success rate).
        asr_at: the same within fewer queries.
        stable: stable successes over attacked; None unless the victim is randomised.
        robust: images that are classified correctly to the end, over all without error.
        cost: queries of attacked images, a failure counting as the limit.
        success_cost: queries of successes.
        area: area under the curve of success rates, see `area_under_curve`.
        mean_pixels: changed pixels of the successes; NaN without any.
        errors: images on which the victim failed.
        unverified: reported successes that did not pass the check.
    """

    images: int
    attacked: int
    asr: Rate
    asr_at: dict[int, Rate]
    stable: Rate | None
    robust: Rate
    cost: Cost
    success_cost: Cost
    area: float
    mean_pixels: float
    errors: int
    unverified: int

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        limit: int,
        at: Iterable[int] = (),
        randomised: bool = False,
    ) -> Summary:
        """Summarise rows.

        Args:
            rows: rows of a setting.
            limit: query limit.
            at: numbers of queries to give the success rate at.
            randomised: whether the victim is.
        """
        statuses = Counter(row.status for row in rows)
        pixels = [row.pixels for row in rows if _won(row, limit)]
        return cls(
            images=len(rows),
            attacked=len(_attacked(rows)),
            asr=success_rate(rows, limit),
            asr_at={q: success_rate(rows, q) for q in at},
            stable=stable_rate(rows, limit) if randomised else None,
            robust=robust_accuracy(rows, limit),
            cost=cost(rows, limit),
            success_cost=success_cost(rows, limit),
            area=area_under_curve(rows, limit),
            mean_pixels=float(np.mean(pixels)) if pixels else math.nan,
            errors=statuses["error"],
            unverified=statuses["unverified"],
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN."""
        return {
            "images": self.images,
            "attacked": self.attacked,
            "asr": self.asr.as_dict(),
            "asr_at": {str(q): rate.as_dict() for q, rate in self.asr_at.items()},
            "asr_stable": None if self.stable is None else self.stable.as_dict(),
            "robust_accuracy": self.robust.as_dict(),
            "median_queries": or_none(self.cost.median),
            "mean_queries": or_none(self.cost.mean),
            "median_queries_of_successes": or_none(self.success_cost.median),
            "mean_queries_of_successes": or_none(self.success_cost.mean),
            "area_under_curve": or_none(self.area),
            "mean_pixels": or_none(self.mean_pixels),
            "errors": self.errors,
            "unverified": self.unverified,
        }


@dataclass(frozen=True)
class Spread:
    """A metric over several seeds; ``std`` is the sample standard deviation (NaN of one seed)."""

    min: float
    mean: float
    max: float
    std: float
    seeds: int


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % percentile bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Two attacks on the same problems.

    Attributes:
        pairs: problems that both attacked.
        images: how many images these are of.
        unmatched: other rows of the first and of the second attack.
        queries: number of queries at which success rates are compared.
        limit: what a failure counts as.
        difference: success rate of the first attack minus that of the second.
        ratio: mean queries of the first attack over those of the second.
    """

    pairs: int
    images: int
    unmatched: tuple[int, int]
    queries: int
    limit: int
    difference: Estimate
    ratio: Estimate


@dataclass(frozen=True)
class Flag:
    """A warning to readers of the numbers; docs/metrics.md says when it is raised."""

    name: str
    text: str


def success_rate(rows: Sequence[Row], queries: float = math.inf) -> Rate:
    """Attack success rate within so many queries, over attacked images."""
    return Rate(sum(_won(row, queries) for row in rows), len(_attacked(rows)))


def stable_rate(rows: Sequence[Row], queries: float = math.inf) -> Rate:
    """The same of successes that can be repeated."""
    hits = sum(_won(row, queries) and row.stable for row in rows)
    return Rate(hits, len(_attacked(rows)))


def robust_accuracy(rows: Sequence[Row], queries: float = math.inf) -> Rate:
    """Images still classified correctly after so many queries, over all without error."""
    statuses = Counter(row.status for row in rows)
    late = sum(row.status in ("success", "unverified") and row.queries > queries for row in rows)
    return Rate(statuses["failed"] + late, len(rows) - statuses["error"])


def success_grid(
    rows_by_pixels: Mapping[int, Sequence[Row]], queries: Iterable[int]
) -> dict[tuple[int, int], Rate]:
    """Success rates by (queries, pixels).

    Args:
        rows_by_pixels: rows of the same attack with several pixel budgets.
        queries: numbers of queries.
    """
    return {
        (number, pixels): success_rate(rows, number)
        for number in queries
        for pixels, rows in rows_by_pixels.items()
    }


def area_under_curve(rows: Sequence[Row], limit: int) -> float:
    """Area under the success rate over queries 0 to ``limit``, divided by ``limit``.

    0 is an attack that never succeeds, and 1 one that needs no queries. The curve is a step
    function, so this is exact: 1 - (mean queries, a failure counting as the limit) / limit.
    """
    return 1 - cost(rows, limit).mean / limit


def cost(rows: Sequence[Row], limit: int) -> Cost:
    """Queries over attacked images, a failure counting as the limit."""
    _check_limit(limit)
    return _cost_of([_spent(row, limit) for row in _attacked(rows)])


def success_cost(rows: Sequence[Row], limit: int) -> Cost:
    """Queries over successes; say how many there are, because a weak attack has the easy ones."""
    _check_limit(limit)
    return _cost_of([row.queries for row in rows if _won(row, limit)])


def by_label(rows: Sequence[Row], limit: int) -> dict[int, Summary]:
    """A summary of each true class."""
    return _grouped(rows, limit, lambda row: row.label)


def by_target(rows: Sequence[Row], limit: int) -> dict[int, Summary]:
    """A summary of each target class; untargeted attacks have none."""
    return _grouped(rows, limit, lambda row: row.target)


def over_seeds(runs: Sequence[Sequence[Row]], metric: Callable[[Sequence[Row]], float]) -> Spread:
    """How much a metric varies with the seed.

    Args:
        runs: rows of each seed, on the same problems.
        metric: a number from rows, as in ``lambda rows: success_rate(rows, 500).value``.
    """
    if not runs:
        raise InputError("there are no runs to take a spread of: give rows of one seed or more")
    if len({frozenset(row.problem for row in rows) for rows in runs}) > 1:
        sizes = ", ".join(str(len(rows)) for rows in runs)
        raise InputError(
            f"the seeds were run on different problems ({sizes} rows): finish all of them, with "
            f"the same pairs"
        )
    values = np.array([metric(rows) for rows in runs], dtype=np.float64)
    std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Spread(float(values.min()), float(values.mean()), float(values.max()), std, len(values))


def clearly_ahead(first: Sequence[Row], second: Sequence[Row], limit: int) -> bool:
    """Whether the first attack succeeds more often within ``limit`` queries, beyond noise.

    By two tests (95 %) that must agree: McNemar's with continuity correction, which knows that few
    pairs decide, and the interval of `compare`, which knows that targets of an image go together.

    Args:
        first: rows of one attack.
        second: rows of the other.
        limit: number of queries.
    """
    wins, losses = _discordant(_matched(first, second), limit)
    if wins - losses - 1 <= Z95 * math.sqrt(wins + losses):
        return False
    return compare(first, second, limit).difference.low > 0


def compare(
    first: Sequence[Row],
    second: Sequence[Row],
    limit: int,
    queries: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare two attacks on the problems that both attacked, with a paired bootstrap.

    Images are drawn with replacement, each with all its targets, which are not independent.

    Args:
        first: rows of one attack.
        second: rows of the other.
        limit: query limit of both; a failure counts as so many.
        queries: where to compare success rates; None is the limit.
        seed: of the bootstrap.
    """
    _check_limit(limit)
    queries = limit if queries is None else queries
    if not 1 <= queries <= limit:
        raise InputError(f"queries is {queries}: give a number from 1 to the limit {limit}")
    pairs = _matched(first, second)
    images = len(_images(pairs))
    if images < FEWEST_IMAGES:
        raise InputError(
            f"of {len(first)} and {len(second)} rows, {len(pairs)} match (attacked by both, of "
            f"{images} images): a comparison needs {FEWEST_IMAGES} images; run both attacks on "
            f"the same pairs"
        )
    sums = _sums_by_image(pairs, limit, queries)
    difference, ratio = _contrast(sums.sum(axis=0))
    differences, ratios = _contrast(_resampled(sums, seed).T)
    return Comparison(
        pairs=len(pairs),
        images=images,
        unmatched=(len(first) - len(pairs), len(second) - len(pairs)),
        queries=queries,
        limit=limit,
        difference=_estimate(difference, differences),
        ratio=_estimate(ratio, ratios),
    )


def flags(rows: Sequence[Row], limit: int, white_box: Sequence[Row] = ()) -> list[Flag]:
    """Reasons to doubt the numbers of ``rows``.

    Args:
        rows: rows of an attack.
        limit: its query limit.
        white_box: rows of a white-box attack with the same pixel budget, if ``rows`` are those of
            a black-box attack.
    """
    found = (
        _not_converged(rows, limit),
        _randomised(rows),
        _beats_white_box(rows, white_box),
        _errors(rows),
    )
    return [flag for flag in found if flag is not None]


def _not_converged(rows: Sequence[Row], limit: int) -> Flag | None:
    _check_limit(limit)
    half, whole = success_rate(rows, limit // 2), success_rate(rows, limit)
    rise = Rate(whole.hits - half.hits, whole.count)
    if rise.interval[0] <= _RISE:
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
    pairs = _matched(black, white)
    if len(_images(pairs)) < FEWEST_IMAGES:
        return None
    most = max(row.queries for pair in pairs for row in pair)
    if not clearly_ahead(black, white, most):
        return None
    wins, losses = _discordant(pairs, most)
    return Flag(
        "black-box-beats-white-box",
        f"of {len(pairs)} images, the black-box attack fooled {wins} that the white-box attack "
        f"did not, and {losses} the other way round: gradients are masked, or the white-box "
        f"attack is weak",
    )


def _discordant(pairs: Sequence[tuple[Row, Row]], queries: float) -> tuple[int, int]:
    """In how many pairs only the first attack succeeded, and in how many only the second."""
    won = Counter((_won(a, queries), _won(b, queries)) for a, b in pairs)
    return won[True, False], won[False, True]


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


def _attacked(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.status not in ("skipped", "error")]


def _won(row: Row, queries: float) -> bool:
    return row.status == "success" and row.queries <= queries


def _spent(row: Row, limit: int) -> int:
    return row.queries if _won(row, limit) else limit


def _cost_of(spent: list[int]) -> Cost:
    if not spent:
        return Cost(math.nan, math.nan, 0)
    return Cost(float(np.mean(spent)), float(np.median(spent)), len(spent))


def _grouped(
    rows: Sequence[Row], limit: int, key: Callable[[Row], int | None]
) -> dict[int, Summary]:
    groups: dict[int, list[Row]] = {}
    for row in rows:
        value = key(row)
        if value is not None:
            groups.setdefault(value, []).append(row)
    return {value: Summary.of(groups[value], limit) for value in sorted(groups)}


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise InputError(f"limit is {limit}: give the query limit of the attack, 1 or more")


def _matched(first: Sequence[Row], second: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Problems that both attacked, by id, so that the order of the attacks does not matter."""
    one, two = _by_problem(first), _by_problem(second)
    return [(one[problem], two[problem]) for problem in sorted(one.keys() & two.keys())]


def _by_problem(rows: Sequence[Row]) -> dict[int, Row]:
    repeated = len(rows) - len({row.problem for row in rows})
    if repeated:
        raise InputError(f"{repeated} problems occur twice: give the rows of one setting")
    return {row.problem: row for row in _attacked(rows)}


def _images(pairs: Sequence[tuple[Row, Row]]) -> list[str]:
    return list(dict.fromkeys(row.image for row, _ in pairs))


def _sums_by_image(
    pairs: Sequence[tuple[Row, Row]], limit: int, queries: int
) -> NDArray[np.float64]:
    """For each image: pairs, successes of both attacks, queries of both."""
    places = {image: place for place, image in enumerate(_images(pairs))}
    sums = np.zeros((len(places), 5))
    for a, b in pairs:
        won = _won(a, queries), _won(b, queries)
        sums[places[a.image]] += (1, *won, _spent(a, limit), _spent(b, limit))
    return sums


def _resampled(sums: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Totals over as many images, drawn with replacement, many times."""
    generator, n = np.random.default_rng(seed), len(sums)
    draws = (generator.integers(n, size=n) for _ in range(_RESAMPLES))
    return np.stack([np.bincount(drawn, minlength=n) @ sums for drawn in draws])


def _contrast(
    totals: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Difference of success rates and ratio of queries."""
    pairs, wins, other_wins, queries, other_queries = totals
    return (wins - other_wins) / pairs, queries / other_queries


def _estimate(value: NDArray[np.float64], draws: NDArray[np.float64]) -> Estimate:
    # Both ends are draws: swapping the attacks then gives exactly the mirrored interval.
    low = np.quantile(draws, 0.025, method="lower")
    high = np.quantile(draws, 0.975, method="higher")
    return Estimate(float(value), float(low), float(high))
