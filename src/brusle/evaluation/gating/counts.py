"""Counts of images, and what follows from them about one condition.

An image whose fate is unknown counts as fooled where a pass is at stake, and as robust where a
failure is: a verdict that holds for both holds whatever the unknown images are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from brusle.evaluation.gating.answers import Result
from brusle.evaluation.gating.images import Fate
from brusle.evaluation.statistics import binomial, paired, sequential
from brusle.evaluation.statistics.paired import Pairs

_FAR = 1 << 15  # images that nobody will attack


@dataclass
class Robust:
    """Images that withstood, against a threshold.

    Attributes:
        threshold: the share that must be robust.
        alphas: how often a false pass and a false failure are allowed.
        in_turn: the bounds are to hold after every image.
        counts: robust and fooled.
        count: all, with the unknown.
    """

    threshold: float
    alphas: tuple[float, float]
    in_turn: bool
    counts: list[int] = field(default_factory=lambda: [0, 0])
    count: int = 0

    def add(self, fate: Fate) -> None:
        """One more image."""
        self.count += 1
        if fate is not None:
            self.counts[0 if fate else 1] += 1

    @property
    def unknown(self) -> int:
        return self.count - sum(self.counts)

    @property
    def value(self) -> float | None:
        known = sum(self.counts)
        return self.counts[0] / known if known else None

    def result(self, robust: int = 0, fooled: int = 0) -> Result:
        """What follows, after so many more images of known fate."""
        count, surely = self.count + robust + fooled, self.counts[0] + robust
        return self._of(surely, surely + self.unknown, count)

    def _of(self, surely: int, possibly: int, count: int) -> Result:
        if not count:
            return "undecided"
        for_pass, for_fail = self.alphas
        if self.in_turn:
            if sequential.is_above(surely, count, self.threshold, for_pass):
                return "pass"
            below = sequential.is_below(possibly, count, self.threshold, for_fail)
        else:
            if binomial.at_least(surely, count, self.threshold) <= for_pass:
                return "pass"
            below = binomial.at_most(possibly, count, self.threshold) <= for_fail
        return "fail" if below else "undecided"

    def bounds(self) -> tuple[float, float]:
        """Between which the true share lies."""
        surely, possibly = self.counts[0], self.counts[0] + self.unknown
        for_pass, for_fail = self.alphas
        if not self.count:
            return 0.0, 1.0
        if self.in_turn:
            low = sequential.lower_bound_always(surely, self.count, for_pass)
            return low, sequential.upper_bound_always(possibly, self.count, for_fail)
        low = binomial.lower_bound(surely, self.count, for_pass)
        return low, binomial.upper_bound(possibly, self.count, for_fail)

    def needed(self) -> int | None:
        """About how many images would decide, if their shares stayed as they are."""
        value = self.value

        def decides(count: int) -> bool:
            hits = round((value or 0) * count)
            return self._of(hits, hits, count) != "undecided"

        return None if value is None else _smallest(decides, _FAR)

    def fewest(self, result: Result, most: int) -> int:
        """The fewest more images after which it could be ``result``; ``most`` if so many cannot."""
        more = partial(self.result, 0) if result == "fail" else self.result
        return next((n for n in range(most) if more(n) == result), most)


@dataclass
class Drop:
    """Images that were lost and gained against a baseline.

    Attributes:
        most: the share that may be lost at most.
        alphas: how often a false pass and a false failure are allowed.
        in_turn: the bounds are to hold after every image.
        counts: lost and gained, of the images that are known in both.
        count: all, with the unknown.
        unknown: of these, such that are unknown in one of the two.
        worst: if every unknown image speaks against the run.
        best: if every unknown image speaks for it.
    """

    most: float
    alphas: tuple[float, float]
    in_turn: bool
    counts: list[int] = field(default_factory=lambda: [0, 0])
    count: int = 0
    unknown: int = 0
    worst: list[int] = field(default_factory=lambda: [0, 0])
    best: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, before: Fate, now: Fate) -> None:
        """One more image, in the baseline and in the run."""
        self.count += 1
        if before is None or now is None:
            self.unknown += 1
        else:
            _book(self.counts, before, now)
        _book(self.worst, before is not False, bool(now))
        _book(self.best, bool(before), now is not False)

    @property
    def value(self) -> float | None:
        known = self.count - self.unknown
        return (self.counts[0] - self.counts[1]) / known if known else None

    def result(self) -> Result:
        """What follows."""
        return self._of(_pairs(self.worst, self.count), _pairs(self.best, self.count))

    def _of(self, worst: Pairs, best: Pairs) -> Result:
        for_pass, for_fail = self.alphas
        if self._small(worst, self.most, for_pass):
            return "pass"
        return "fail" if self._small(best.reversed, -self.most, for_fail) else "undecided"

    @property
    def _small(self) -> paired.Small:
        return paired.drop_is_always_at_most if self.in_turn else paired.drop_is_at_most

    def bounds(self) -> tuple[float, float]:
        """Between which the true drop lies."""
        for_pass, for_fail = self.alphas
        worst, best = _pairs(self.worst, self.count), _pairs(self.best, self.count)
        low, _ = paired.drop_bounds(best, (for_fail, for_pass), self._small)
        _, high = paired.drop_bounds(worst, (for_fail, for_pass), self._small)
        return low, high

    def needed(self) -> int | None:
        """About how many images would decide, if their shares stayed as they are."""
        known = self.count - self.unknown

        def decides(count: int) -> bool:
            pairs = _pairs([round(n * count / known) for n in self.counts], count)
            return self._of(pairs, pairs) != "undecided"

        return _smallest(decides, _FAR) if known else None


def _pairs(counts: Sequence[int], count: int) -> Pairs:
    return Pairs(counts[0], counts[1], count)


def _book(counts: list[int], before: bool, now: bool) -> None:
    if before != now:
        counts[0 if before else 1] += 1


def _smallest(decides: Callable[[int], bool], most: int) -> int | None:
    """About the smallest number that decides; None if none up to ``most`` does."""
    high = 1
    while not decides(high):
        high *= 2
        if high > most:
            return None
    low = high // 2
    while high - low > max(1, high // 50):  # it is a guess: two digits are enough
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high
