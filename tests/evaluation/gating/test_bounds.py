"""The bounds of gates: against SciPy, sums over all that can happen, and simulated models."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import integrate, special, stats

from brusle.evaluation.gating.counts import Drop, Robust
from brusle.evaluation.statistics import binomial, paired, sequential
from brusle.evaluation.statistics.paired import Pairs

ALPHA = 0.05


@cache
def robust(hits: int, count: int, threshold: float, in_turn: bool, alpha: float = ALPHA) -> str:
    counts = [hits, count - hits]
    return Robust(threshold, (alpha, alpha), in_turn, counts=counts, count=count).result()


@pytest.mark.parametrize("count", [1, 2, 7, 60, 1000])
def test_bounds_are_those_of_clopper_and_pearson(count) -> None:
    for hits in sorted({0, 1, count // 3, count - 1, count}):
        low = stats.beta.ppf(ALPHA, hits, count - hits + 1) if hits else 0
        high = stats.beta.ppf(1 - ALPHA, hits + 1, count - hits) if hits < count else 1
        assert binomial.lower_bound(hits, count, ALPHA) == pytest.approx(low, abs=1e-12)
        assert binomial.upper_bound(hits, count, ALPHA) == pytest.approx(high, abs=1e-12)
        for rate in (1e-9, 0.3, 0.6, 1 - 1e-9):
            assert binomial.at_most(hits, count, rate) == pytest.approx(
                stats.binom.cdf(hits, count, rate), rel=1e-9, abs=1e-300
            )


@pytest.mark.parametrize("threshold", [0.02, 0.3, 0.6, 0.95])
@pytest.mark.parametrize("count", [1, 5, 20, 61, 200])
def test_verdicts_on_so_many_images_are_wrong_no_more_often_than_allowed(threshold, count) -> None:
    """An exact sum over all outcomes, at rates from far below to the threshold and above."""
    results = np.array([robust(hits, count, threshold, False) for hits in range(count + 1)])
    for rate in np.linspace(0, 1, 101):
        mass = stats.binom.pmf(np.arange(count + 1), count, rate)
        if rate < threshold:
            assert mass[results == "pass"].sum() <= ALPHA
        else:
            assert mass[results == "fail"].sum() <= ALPHA
    edge = stats.binom.pmf(np.arange(count + 1), count, threshold)
    assert edge[results == "pass"].sum() <= ALPHA and edge[results == "fail"].sum() <= ALPHA


def test_wilsons_bound_would_pass_too_often() -> None:
    """Why a gate does not take the intervals of the tables."""
    z, worst = stats.norm.ppf(1 - ALPHA), 0.0
    for count, rate in itertools.product((20, 50, 100), (0.02, 0.05, 0.1)):
        hits = np.arange(count + 1)
        share = hits / count
        centre = (share + z * z / (2 * count)) / (1 + z * z / count)
        half = np.sqrt(share * (1 - share) / count + z * z / (4 * count**2)) * z
        passes = centre - half / (1 + z * z / count) >= rate
        worst = max(worst, float(stats.binom.pmf(hits, count, rate)[passes].sum()))
    assert worst > 1.5 * ALPHA


@pytest.mark.parametrize(("hits", "count", "threshold"), [(0, 1, 0.5), (9, 10, 0.6), (30, 80, 0.6)])
def test_the_evidence_is_an_average_of_likelihood_ratios(hits, count, threshold) -> None:
    def ratio(rate: float) -> float:
        mine, at = (stats.binom.pmf(hits, count, r) for r in (rate, threshold))
        return float(mine / at) / (1 - threshold)

    above, _ = integrate.quad(ratio, threshold, 1)
    assert sequential.log_evidence_above(hits, count, threshold) == pytest.approx(math.log(above))


@pytest.mark.parametrize("threshold", [Fraction(1, 10), Fraction(3, 5), Fraction(19, 20)])
def test_no_image_is_expected_to_add_evidence_if_the_rate_is_not_above(threshold) -> None:
    """The evidence is a supermartingale: its mean after one more image is what it is, or less."""
    for rate in (threshold, threshold / 2, threshold * 9 / 10):
        for count, hits in ((0, 0), (1, 1), (10, 4), (40, 39), (100, 60)):
            now, hit, miss = (
                math.exp(sequential.log_evidence_above(h, n, float(threshold)))
                for h, n in ((hits, count), (hits + 1, count + 1), (hits, count + 1))
            )
            after = float(rate) * hit + float(1 - rate) * miss
            assert after == pytest.approx(now) if rate == threshold else after <= now * (1 + 1e-9)


def walk(threshold: float, rate: float, most: int, alpha: float = ALPHA) -> tuple[float, ...]:
    """Probability of a pass and of a failure at any time, and the mean number of images.

    Plays the random walk of robust images through, state by state.
    """
    alive, passed, failed, images = {0: 1.0}, 0.0, 0.0, 0.0
    for count in range(1, most + 1):
        images += sum(alive.values())
        after: dict[int, float] = {}
        for hits, mass in alive.items():
            for now, share in ((hits + 1, rate), (hits, 1 - rate)):
                result = robust(now, count, threshold, True, alpha)
                passed += mass * share * (result == "pass")
                failed += mass * share * (result == "fail")
                if result == "undecided":
                    after[now] = after.get(now, 0.0) + mass * share
        alive = after
    return passed, failed, images


@pytest.mark.parametrize(
    ("threshold", "alpha"), [(0.6, 0.05), (0.9, 0.05), (0.05, 0.05), (0.5, 0.2)]
)
def test_verdicts_in_turn_are_wrong_no_more_often_than_allowed_at_any_time(
    threshold, alpha
) -> None:
    passed, failed, _ = walk(threshold, threshold, 150, alpha)
    assert 0.2 * alpha < passed <= alpha and 0.2 * alpha < failed <= alpha
    assert walk(threshold, 0.9 * threshold, 100, alpha)[0] < passed
    assert walk(threshold, min(1, 1.04 * threshold), 100, alpha)[1] < failed


@pytest.mark.parametrize("rate", [0.45, 0.75])
def test_clear_cases_take_less_than_half_of_the_images(rate) -> None:
    """Against 400 at once, which tell seven points apart; the threshold is 60 %."""
    passed, failed, images = walk(0.6, rate, 400)
    assert images < 100 and (passed if rate > 0.6 else failed) > 0.99


@pytest.mark.parametrize("in_turn", [True, False])
def test_a_verdict_is_what_the_bounds_say(in_turn) -> None:
    for count, threshold in itertools.product((3, 20, 77), (0.1, 0.6, 0.93)):
        for hits in range(count + 1):
            counts = Robust(threshold, (ALPHA, ALPHA), in_turn, [hits, count - hits], count)
            low, high = counts.bounds()
            expected = "pass" if low >= threshold else "fail" if high <= threshold else "undecided"
            assert counts.result() == expected and low <= hits / count <= high


def paired_rates(count: int, drop: float, share: float) -> np.ndarray:
    """Probability of all (lost, gained): the trinomial distribution."""
    a, b = np.meshgrid(np.arange(count + 1), np.arange(count + 1), indexing="ij")
    rest = np.maximum(count - a - b, 0)
    logs = sum(
        special.xlogy(number, max(0.0, chance)) - special.gammaln(number + 1)
        for number, chance in ((a, (share + drop) / 2), (b, (share - drop) / 2), (rest, 1 - share))
    )
    return np.where(a + b <= count, np.exp(special.gammaln(count + 1) + logs), 0)


@pytest.mark.parametrize("most", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("count", [10, 20])
def test_verdicts_on_a_drop_are_wrong_no_more_often_than_allowed(count, most) -> None:
    """An exact sum over all counts, for all shares of images that differ."""
    small = np.zeros((count + 1, count + 1), bool)
    large = np.zeros((count + 1, count + 1), bool)
    for lost, gained in itertools.product(range(count + 1), repeat=2):
        if lost + gained <= count:
            both = [lost, gained]
            drop = Drop(most, (ALPHA, ALPHA), False, both, count, worst=both, best=both)
            small[lost, gained], large[lost, gained] = (
                drop.result() == result for result in ("pass", "fail")
            )
    for share in np.unique([most, *np.linspace(most, 1, 23)]):
        assert paired_rates(count, most, share)[small].sum() <= ALPHA
        assert paired_rates(count, most, share)[large].sum() <= ALPHA
        for further in (0.02, 0.3):
            if most + further <= share:
                assert paired_rates(count, most + further, share)[small].sum() <= ALPHA
            if share >= abs(most - further):
                assert paired_rates(count, most - further, share)[large].sum() <= ALPHA


def test_bounds_of_a_drop_hold_it_and_mirror() -> None:
    for pairs in (Pairs(0, 0, 30), Pairs(9, 2, 60), Pairs(1, 0, 5), Pairs(60, 0, 60)):
        for small in (paired.drop_is_at_most, paired.drop_is_always_at_most):
            low, high = paired.drop_bounds(pairs, (ALPHA, ALPHA), small)
            assert -1 <= low <= pairs.drop <= high <= 1
            mirrored = paired.drop_bounds(pairs.reversed, (ALPHA, ALPHA), small)
            assert mirrored == pytest.approx((-high, -low), abs=1e-9)
    assert paired.drop_bounds(Pairs(9, 2, 60), (ALPHA, ALPHA))[0] > 0  # as McNemar says
    assert stats.binomtest(9, 11).pvalue / 2 < ALPHA


def test_no_bet_on_a_smaller_drop_is_expected_to_win() -> None:
    """What `drop_is_always_at_most` sums up has a mean of at most 1, whatever share differs."""
    for most, share in itertools.product((0.0, 0.05, 0.3), (0.3, 0.6, 1.0)):
        mass, total = paired_rates(12, most, share), 0.0
        stakes = (np.arange(64) + 0.5) / 64 / (1 - most)
        for lost, gained in itertools.product(range(13), repeat=2):
            if lost + gained <= 12:
                won = (1 + stakes * (1 + most)) ** gained * (1 + stakes * (most - 1)) ** lost
                won = won * (1 + stakes * most) ** (12 - lost - gained)
                total += mass[lost, gained] * won.mean()
                wins = paired.drop_is_always_at_most(Pairs(lost, gained, 12), most, ALPHA)
                assert wins == (won.mean() >= 1 / ALPHA)
        assert total == pytest.approx(1)


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_two_thousand_simulated_models(in_turn, spread) -> None:
    """As many false verdicts as allowed, or fewer: of models near the threshold, or just at it."""
    rng = np.random.default_rng(1)
    rates = rng.uniform(0.6 - spread, 0.6 + spread, 2000)
    known: dict[tuple[int, int], str] = {}
    false = {"pass": 0, "fail": 0}
    for rate in rates:
        hits, verdict = np.cumsum(rng.random(200) < rate).tolist(), "undecided"
        for count in range(1, 201) if in_turn else [200]:
            state = hits[count - 1], count
            if state not in known:
                known[state] = robust(*state, 0.6, in_turn)
            if (verdict := known[state]) != "undecided":
                break
        false["pass"] += verdict == "pass" and rate <= 0.6
        false["fail"] += verdict == "fail" and rate >= 0.6
    for result, truly in (("pass", rates <= 0.6), ("fail", rates >= 0.6)):
        # just at the threshold, where all of the allowed errors happen, chance decides which side
        many = truly.sum()
        most = ALPHA * many if spread else stats.binom.ppf(0.999, many, ALPHA)
        assert 0 < false[result] <= most


def test_unknown_images_may_be_anything() -> None:
    """Whatever the unknown ones are, the verdict would be the same."""
    rng = np.random.default_rng(2)
    for in_turn in (False, True):
        for _ in range(200):
            counts = Robust(0.6, (ALPHA, ALPHA), in_turn)
            for fate in rng.choice([True, True, False, None], rng.integers(1, 60)):
                counts.add(fate)
            hits, _ = counts.counts
            all_ways = {
                robust(hits + more, counts.count, 0.6, in_turn)
                for more in range(counts.unknown + 1)
            }
            expected = all_ways.pop() if len(all_ways) == 1 else "undecided"
            assert counts.result() == expected


def test_an_unknown_image_of_either_run_may_be_anything() -> None:
    rng = np.random.default_rng(3)
    for _ in range(150):
        fates = rng.choice(
            [True, True, False, None], (rng.integers(1, 6), 2), p=[0.4, 0.3, 0.2, 0.1]
        )
        counts = Drop(0.05, (ALPHA, ALPHA), False)
        for before, now in fates:
            counts.add(before, now)
        ways = [[f] if f is not None else [True, False] for f in fates.ravel()]
        drops = []
        for chosen in itertools.product(*ways):
            both = np.array(chosen).reshape(-1, 2).astype(int)
            drops.append(int((both[:, 0] - both[:, 1]).sum()))
        assert counts.worst[0] - counts.worst[1] == max(drops)
        assert counts.best[0] - counts.best[1] == min(drops)


def test_the_number_that_is_needed_decides_and_a_tenth_less_does_not() -> None:
    for in_turn, hits in itertools.product((False, True), (40, 50, 65, 68)):
        counts = Robust(0.6, (ALPHA, ALPHA), in_turn, [hits, 100 - hits], 100)
        if counts.result() == "undecided":
            needed = counts.needed()
            assert needed is not None and needed > 100
            assert robust(round(needed * hits / 100), needed, 0.6, in_turn) != "undecided"
            less = needed * 9 // 10
            assert robust(round(less * hits / 100), less, 0.6, in_turn) == "undecided"
    assert Robust(0.6, (ALPHA, ALPHA), False, [60, 40], 100).needed() is None


def test_no_fewer_images_than_the_fewest_could_decide() -> None:
    for hits, count, unknown in ((0, 0, 0), (6, 10, 0), (50, 80, 3)):
        counts = Robust(0.6, (ALPHA, ALPHA), True, [hits, count - hits - unknown], count)
        for result, robust_ones in (("pass", 1), ("fail", 0)):
            fewest = counts.fewest(result, 500)
            assert counts.result(fewest * robust_ones, fewest * (1 - robust_ones)) == result
            for less in range(fewest):
                assert {counts.result(some, less - some) for some in range(less + 1)} <= {
                    "undecided",
                    "pass" if result == "fail" else "fail",
                }
