"""Numbers from stored rows: curves, costs, comparisons, and warnings about them.

All functions take rows of one setting (an attack with its budgets on one victim), and count as
docs/metrics.md says: errors are in no denominator, unverified results in all denominators and in no
numerator. Where a limit is lower than the one that an attack ran with, a success after more
queries is a failure.

A search for the fewest pixels spends all its queries, so that success over queries says nothing
about it. Its rows are summarised by the pixels that they needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brusle.errors import InputError
from brusle.evaluation.record import Row
from brusle.evaluation.statistics.rates import Z95, Rate, or_none

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
class Estimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether the interval does not hold ``value``."""
        return not self.low <= value <= self.high

    def as_dict(self) -> dict[str, float | None]:
        """For JSON; what is not finite is None."""
        return {name: x if math.isfinite(x) else None for name, x in vars(self).items()}


@dataclass(frozen=True)
class PixelsNeeded:
    """The fewest pixels that fool images, as far as a search has found them.

    An image that was not fooled needs more than the limit, nobody knows how many. So a quartile
    that lies among such images is infinite, and of the mean only a bound is known.

    Attributes:
        limit: most pixels that the search was allowed.
        lower: the fewest pixels with which a quarter of the attacked images are fooled.
        median: the same of half of them.
        upper: the same of three quarters.
        mean: over the images that were fooled; NaN without any.
        bound: over all attacked images, one that was not fooled counting as one pixel more than
            the limit: the mean is at least that. NaN without any.
        robust: robust accuracy if so many pixels may be changed: at 0, wherever it falls, and at
            the limit.
    """

    limit: int
    lower: Estimate
    median: Estimate
    upper: Estimate
    mean: float
    bound: float
    robust: dict[int, Rate] = field(hash=False)

    @classmethod
    def of(cls, rows: Sequence[Row], limit: int) -> PixelsNeeded:
        """Summarise rows of a search for the fewest pixels, at most ``limit``."""
        fooled = [row.pixels for row in rows if _won(row, math.inf, limit)]
        broken = {row.pixels for row in rows if row.status in ("success", "unverified")}
        marks = sorted({0, *(pixels for pixels in broken if pixels < limit), limit})
        lower, median, upper = (_needed_by(rows, limit, share) for share in (0.25, 0.5, 0.75))
        return cls(
            limit=limit,
            lower=lower,
            median=median,
            upper=upper,
            mean=float(np.mean(fooled)) if fooled else math.nan,
            bound=mean_needed(rows, limit),
            robust={mark: robust_accuracy(rows, pixels=mark) for mark in marks},
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON; a quartile of None is more than the limit, if any image was attacked."""
        quartiles = {"lower_quartile": self.lower, "median": self.median}
        return {
            "limit": self.limit,
            **{name: x.as_dict() for name, x in quartiles.items()},
            "upper_quartile": self.upper.as_dict(),
            "mean_of_fooled": or_none(self.mean),
            "mean_at_least": or_none(self.bound),
            "robust_accuracy_within": {str(p): rate.as_dict() for p, rate in self.robust.items()},
        }


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
        needed: pixels needed, of a search for the fewest; None of other attacks. Such a search
            spends all its queries: ``asr_at`` is empty then, and costs and area are NaN.
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
    needed: PixelsNeeded | None = None

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        limit: int,
        at: Iterable[int] = (),
        randomised: bool = False,
        fewest: int | None = None,
    ) -> Summary:
        """Summarise rows.

        Args:
            rows: rows of a setting.
            limit: query limit.
            at: numbers of queries to give the success rate at.
            randomised: whether the victim is.
            fewest: pixel limit of a search for the fewest pixels; None of other attacks.
        """
        curve = fewest is None  # over queries
        statuses = Counter(row.status for row in rows)
        pixels = [row.pixels for row in rows if _won(row, limit)]
        return cls(
            images=len(rows),
            attacked=len(_attacked(rows)),
            asr=success_rate(rows, limit),
            asr_at={q: success_rate(rows, q) for q in at if curve},
            stable=stable_rate(rows, limit) if randomised else None,
            robust=robust_accuracy(rows, limit),
            cost=cost(rows, limit) if curve else _cost_of([]),
            success_cost=success_cost(rows, limit) if curve else _cost_of([]),
            area=area_under_curve(rows, limit) if curve else math.nan,
            mean_pixels=float(np.mean(pixels)) if pixels else math.nan,
            errors=statuses["error"],
            unverified=statuses["unverified"],
            needed=None if fewest is None else PixelsNeeded.of(rows, fewest),
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
            "pixels_needed": None if self.needed is None else self.needed.as_dict(),
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
class Match:
    """Rows of two attacks that belong together: a setting with one seed.

    Attributes:
        first: rows of one attack.
        second: rows of the other.
        limit: query limit of both; a failure counts as so many.
        queries: where to compare success rates; None is the limit.
        fewest: pixel limit of both, if they are searches for the fewest pixels: they are then
            compared by the pixels needed and not by queries, which they spend to the last.
    """

    first: Sequence[Row]
    second: Sequence[Row]
    limit: int
    queries: int | None = None
    fewest: int | None = None

    def check(self) -> None:
        """Raise if the limits make no sense."""
        _check_limit(self.limit)
        if not 1 <= self.at <= self.limit:
            raise InputError(
                f"queries is {self.at}: give a number from 1 to the limit {self.limit}"
            )

    @property
    def at(self) -> int:
        """Where success rates are compared."""
        return self.limit if self.queries is None else self.queries

    @property
    def most(self) -> tuple[float, float]:
        """Queries and pixels within which an image must be fooled to count."""
        return (self.at, math.inf) if self.fewest is None else (math.inf, self.fewest)

    def attacked(self) -> list[tuple[Row, Row]]:
        """Problems that both attacked, by id: the order of the attacks does not matter."""
        return _matched(_attacked(self.first), _attacked(self.second))

    def answered(self) -> list[tuple[Row, Row]]:
        """The same with problems that were wrong from the start: all without error."""
        return _matched(_answered(self.first), _answered(self.second))

    def effort(self, row: Row) -> int:
        """Queries, a failure counting as the limit; or pixels needed, as in `mean_needed`."""
        return _spent(row, self.limit) if self.fewest is None else _needed(row, self.fewest)


@dataclass(frozen=True)
class Comparison:
    """Two attacks on the same problems.

    Attributes:
        pairs: problems that both attacked; with several seeds, each so many times.
        images: how many images these are of.
        unmatched: other rows of the first and of the second attack.
        difference: success rate of the first attack minus that of the second.
        robust: robust accuracy under the first attack minus that under the second, over the
            problems on which neither failed with an error.
        ratio: mean effort of the first attack over that of the second; effort is queries, or the
            pixels needed if these are searches for the fewest.
        excess: mean effort of the first attack minus that of the second.
    """

    pairs: int
    images: int
    unmatched: tuple[int, int]
    difference: Estimate
    robust: Estimate
    ratio: Estimate
    excess: Estimate


@dataclass(frozen=True)
class Flag:
    """A warning to readers of the numbers; docs/metrics.md says when it is raised."""

    name: str
    text: str


def success_rate(rows: Sequence[Row], queries: float = math.inf, pixels: float = math.inf) -> Rate:
    """Attack success rate within so many queries and changed pixels, over attacked images."""
    return Rate(sum(_won(row, queries, pixels) for row in rows), len(_attacked(rows)))


def stable_rate(rows: Sequence[Row], queries: float = math.inf) -> Rate:
    """The same of successes that can be repeated."""
    hits = sum(_won(row, queries) and row.stable for row in rows)
    return Rate(hits, len(_attacked(rows)))


def robust_accuracy(
    rows: Sequence[Row], queries: float = math.inf, pixels: float = math.inf
) -> Rate:
    """Images not fooled within so many queries and changed pixels, over all without error."""
    return Rate(sum(_stands(row, queries, pixels) for row in rows), len(_answered(rows)))


def mean_needed(rows: Sequence[Row], limit: int) -> float:
    """Mean pixels needed over attacked images; NaN without any.

    An image that was not fooled within ``limit`` pixels counts as one pixel more, the fewest that
    it can need.
    """
    needed = [_needed(row, limit) for row in _attacked(rows)]
    return float(np.mean(needed)) if needed else math.nan


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


def by_label(rows: Sequence[Row], limit: int, fewest: int | None = None) -> dict[int, Summary]:
    """A summary of each true class; arguments as for `Summary.of`."""
    return _grouped(rows, limit, fewest, lambda row: row.label)


def by_target(rows: Sequence[Row], limit: int, fewest: int | None = None) -> dict[int, Summary]:
    """A summary of each target class; untargeted attacks have none."""
    return _grouped(rows, limit, fewest, lambda row: row.target)


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
    return spread([metric(rows) for rows in runs])


def spread(values: Sequence[float]) -> Spread:
    """How much one value for each seed varies."""
    found = np.array(values, dtype=np.float64)
    std = float(found.std(ddof=1)) if len(found) > 1 else math.nan
    return Spread(float(found.min()), float(found.mean()), float(found.max()), std, len(found))


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
    return compare_matches([Match(first, second, limit, queries)], seed)


def compare_matches(matches: Sequence[Match], seed: int = 0) -> Comparison:
    """Compare two attacks over several seeds or settings at once, with a paired bootstrap.

    A pair is a problem with a seed and setting. What is drawn are images, each with all its pairs:
    another seed is not another image.

    Args:
        matches: either all of searches for the fewest pixels, or none.
        seed: of the bootstrap.
    """
    for match in matches:
        match.check()
    pairs = [(match, *pair) for match in matches for pair in match.attacked()]
    images = len({a.image for _, a, _ in pairs})
    sizes = sum(len(m.first) for m in matches), sum(len(m.second) for m in matches)
    if images < FEWEST_IMAGES:
        raise InputError(
            f"of {sizes[0]} and {sizes[1]} rows, {len(pairs)} match (attacked by both, of "
            f"{images} images): a comparison needs {FEWEST_IMAGES} images; run both attacks on "
            f"the same pairs"
        )
    attacked = [
        (a.image, (_won(a, *m.most), _won(b, *m.most), m.effort(a), m.effort(b)))
        for m, a, b in pairs
    ]
    answered = [
        (a.image, (_stands(a, *m.most), _stands(b, *m.most))) for m in matches
        for a, b in m.answered()
    ]  # fmt: skip
    difference, ratio, excess = _estimates(attacked, _contrast, seed)
    (robust,) = _estimates(answered, _robust_contrast, seed)
    return Comparison(
        pairs=len(pairs),
        images=images,
        unmatched=(sizes[0] - len(pairs), sizes[1] - len(pairs)),
        difference=difference,
        robust=robust,
        ratio=ratio,
        excess=excess,
    )


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
    pairs = _matched(_attacked(black), _attacked(white))
    if len({row.image for row, _ in pairs}) < FEWEST_IMAGES:
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


def _answered(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.status != "error"]


def _won(row: Row, queries: float, pixels: float = math.inf) -> bool:
    return row.status == "success" and row.queries <= queries and row.pixels <= pixels


def _stands(row: Row, queries: float, pixels: float = math.inf) -> bool:
    """Whether the image is classified correctly within so many queries and pixels."""
    if row.status in ("success", "unverified"):
        return row.queries > queries or row.pixels > pixels
    return row.status == "failed"


def _needed(row: Row, limit: int) -> int:
    return row.pixels if _won(row, math.inf, limit) else limit + 1


def _needed_by(rows: Sequence[Row], limit: int, share: float) -> Estimate:
    """The fewest pixels with which a share of the attacked images is fooled.

    The interval holds the numbers of pixels at which the Wilson interval of the share that is
    fooled holds ``share``.
    """
    counts = Counter(_needed(row, limit) for row in _attacked(rows))
    if not counts:
        return Estimate(math.nan, math.nan, math.nan)
    found, fooled = [math.inf] * 3, 0
    for pixels in sorted({1, *(pixels for pixels in counts if pixels <= limit)}):
        fooled += counts[pixels]
        rate = Rate(fooled, counts.total())
        for at, reached in enumerate((rate.value, rate.interval[1], rate.interval[0])):
            if reached >= share:
                found[at] = min(found[at], pixels)
    return Estimate(*found)


def _spent(row: Row, limit: int) -> int:
    return row.queries if _won(row, limit) else limit


def _cost_of(spent: list[int]) -> Cost:
    if not spent:
        return Cost(math.nan, math.nan, 0)
    return Cost(float(np.mean(spent)), float(np.median(spent)), len(spent))


def _grouped(
    rows: Sequence[Row], limit: int, fewest: int | None, key: Callable[[Row], int | None]
) -> dict[int, Summary]:
    groups: dict[int, list[Row]] = {}
    for row in rows:
        value = key(row)
        if value is not None:
            groups.setdefault(value, []).append(row)
    return {value: Summary.of(groups[value], limit, fewest=fewest) for value in sorted(groups)}


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise InputError(f"limit is {limit}: give the query limit of the attack, 1 or more")


def _matched(first: Sequence[Row], second: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Rows of the same problems, by id, so that the order of the attacks does not matter."""
    one, two = _by_problem(first), _by_problem(second)
    return [(one[problem], two[problem]) for problem in sorted(one.keys() & two.keys())]


def _by_problem(rows: Sequence[Row]) -> dict[int, Row]:
    found = {row.problem: row for row in rows}
    if len(found) < len(rows):
        repeated = len(rows) - len(found)
        raise InputError(f"{repeated} problems occur twice: give the rows of one setting")
    return found


def _estimates(
    pairs: Sequence[tuple[str, tuple[float, ...]]],
    contrast: Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], ...]],
    seed: int,
) -> list[Estimate]:
    """What ``contrast`` makes of the sums of numbers over pairs, with bootstrap intervals.

    Args:
        pairs: the image of each pair, and its numbers.
        contrast: results from the number of pairs and the sums.
        seed: of the bootstrap.
    """
    places = {image: place for place, image in enumerate(dict.fromkeys(x for x, _ in pairs))}
    sums = np.zeros((len(places), 1 + len(pairs[0][1])))
    for image, numbers in pairs:
        sums[places[image]] += (1, *numbers)
    values, draws = contrast(sums.sum(axis=0)), contrast(_resampled(sums, seed).T)
    return [_estimate(value, drawn) for value, drawn in zip(values, draws, strict=True)]


def _resampled(sums: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Totals over as many images, drawn with replacement, many times."""
    generator, n = np.random.default_rng(seed), len(sums)
    draws = (generator.integers(n, size=n) for _ in range(_RESAMPLES))
    return np.stack([np.bincount(drawn, minlength=n) @ sums for drawn in draws])


def _contrast(totals: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Difference of success rates, ratio and difference of mean efforts."""
    pairs, wins, other_wins, effort, other = totals
    return (wins - other_wins) / pairs, effort / other, (effort - other) / pairs


def _robust_contrast(totals: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Difference of robust accuracies."""
    pairs, stands, other = totals
    return ((stands - other) / pairs,)


def _estimate(value: NDArray[np.float64], draws: NDArray[np.float64]) -> Estimate:
    # Both ends are draws: swapping the attacks then gives exactly the mirrored interval.
    low = np.quantile(draws, 0.025, method="lower")
    high = np.quantile(draws, 0.975, method="higher")
    return Estimate(float(value), float(low), float(high))
