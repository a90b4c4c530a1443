"""Two attacks on the same problems."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from brusle.errors import InputError
from brusle.evaluation.record import Row
from brusle.evaluation.statistics.bootstrap import Totals, estimates
from brusle.evaluation.statistics.costs import check_limit, spent
from brusle.evaluation.statistics.counting import answered, attacked, stands, won
from brusle.evaluation.statistics.pixels import needed
from brusle.evaluation.statistics.rates import Z95, Estimate

FEWEST_IMAGES = 10  # with fewer, a resampled set of images says nothing


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
        check_limit(self.limit)
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
        return matched(attacked(self.first), attacked(self.second))

    def answered(self) -> list[tuple[Row, Row]]:
        """The same with problems that were wrong from the start: all without error."""
        return matched(answered(self.first), answered(self.second))

    def effort(self, row: Row) -> int:
        """Queries, a failure counting as the limit; or pixels needed, as in `mean_needed`."""
        return spent(row, self.limit) if self.fewest is None else needed(row, self.fewest)


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
    difference, ratio, excess = estimates([_contest(*pair) for pair in pairs], _contrast, seed)
    answered_pairs = [(match, *pair) for match in matches for pair in match.answered()]
    (robust,) = estimates([_survival(*pair) for pair in answered_pairs], _robust_contrast, seed)
    return Comparison(
        pairs=len(pairs),
        images=images,
        unmatched=(sizes[0] - len(pairs), sizes[1] - len(pairs)),
        difference=difference,
        robust=robust,
        ratio=ratio,
        excess=excess,
    )


def _contest(match: Match, first: Row, second: Row) -> tuple[str, tuple[float, ...]]:
    """The image of a pair; which of the two fooled it, and with how much effort."""
    won_by = won(first, *match.most), won(second, *match.most)
    return first.image, (*won_by, match.effort(first), match.effort(second))


def _contrast(totals: Totals) -> tuple[Totals, ...]:
    """Difference of success rates, ratio and difference of mean efforts."""
    pairs, wins, other_wins, effort, other = totals
    return (wins - other_wins) / pairs, effort / other, (effort - other) / pairs


def _survival(match: Match, first: Row, second: Row) -> tuple[str, tuple[float, ...]]:
    """The image of a pair; under which of the two it is classified correctly to the end."""
    return first.image, (stands(first, *match.most), stands(second, *match.most))


def _robust_contrast(totals: Totals) -> tuple[Totals, ...]:
    """Difference of robust accuracies."""
    pairs, standing, other = totals
    return ((standing - other) / pairs,)


def clearly_ahead(first: Sequence[Row], second: Sequence[Row], limit: int) -> bool:
    """Whether the first attack succeeds more often within ``limit`` queries, beyond noise.

    By two tests (95 %) that must agree: McNemar's with continuity correction, which knows that few
    pairs decide, and the interval of `compare`, which knows that targets of an image go together.

    Args:
        first: rows of one attack.
        second: rows of the other.
        limit: number of queries.
    """
    wins, losses = discordant(matched(first, second), limit)
    if wins - losses - 1 <= Z95 * math.sqrt(wins + losses):
        return False
    return compare(first, second, limit).difference.low > 0


def matched(first: Sequence[Row], second: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Rows of the same problems, by id, so that the order of the attacks does not matter."""
    one, two = _by_problem(first), _by_problem(second)
    return [(one[problem], two[problem]) for problem in sorted(one.keys() & two.keys())]


def _by_problem(rows: Sequence[Row]) -> dict[int, Row]:
    found = {row.problem: row for row in rows}
    if len(found) < len(rows):
        repeated = len(rows) - len(found)
        raise InputError(f"{repeated} problems occur twice: give the rows of one setting")
    return found


def discordant(pairs: Sequence[tuple[Row, Row]], queries: float) -> tuple[int, int]:
    """In how many pairs only the first attack succeeded, and in how many only the second."""
    outcomes = Counter((won(a, queries), won(b, queries)) for a, b in pairs)
    return outcomes[True, False], outcomes[False, True]
