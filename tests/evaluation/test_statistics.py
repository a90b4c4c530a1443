import math
import random

import pytest

from brusle.errors import InputError
from brusle.evaluation.statistics import (
    Cost,
    Rate,
    Summary,
    area_under_curve,
    by_label,
    by_target,
    compare,
    cost,
    flags,
    over_seeds,
    robust_accuracy,
    stable_rate,
    success_cost,
    success_grid,
    success_rate,
)
from brusle.evaluation.storing.store import Row


def row(
    problem,
    status="success",
    queries=0,
    *,
    image=None,
    label=0,
    target=None,
    stable=None,
    pixels=3,
):
    return Row(
        problem=problem,
        image=str(problem) if image is None else image,
        label=label,
        target=target,
        status=status,
        stable=status == "success" if stable is None else stable,
        queries=queries,
        clean=1,
        initial=0,
        search=queries,
        verify=0,
        lost=0,
        backward=0,
        pixels=pixels,
        clean_label=label,
        final_label=1,
        loss=0.0,
        scores=b"",
        edits=b"",
        found_by="",
        error="",
        seconds=0.0,
    )


def rows_of(wins, failures, start=0):
    """Successes after the given numbers of queries, then failures at a limit of 100."""
    done = [row(start + i, "success", q) for i, q in enumerate(wins)]
    return done + [row(start + len(done) + i, "failed", 100) for i in range(failures)]


# two successes, a failure, an unverified one; skipped and error were not attacked
MIXED = [
    row(1, "success", 10),
    row(2, "success", 40),
    row(3, "failed", 100),
    row(4, "unverified", 30),
    row(5, "skipped", 0),
    row(6, "error", 70),
]
ERRORS = [row(i, "error", 5) for i in range(12)]


def test_rates_count_as_documented() -> None:
    assert [success_rate(MIXED, q) for q in (9, 10, 39, 40, 100)] == [
        Rate(0, 4),
        Rate(1, 4),
        Rate(1, 4),
        Rate(2, 4),
        Rate(2, 4),
    ]
    assert robust_accuracy(MIXED) == Rate(1, 5)
    # after 35 queries, the second success and the failure were still classified correctly
    assert robust_accuracy(MIXED, 35) == Rate(2, 5)
    assert robust_accuracy(MIXED, 5) == Rate(4, 5)


def test_stable_rate() -> None:
    rows = [row(1, queries=3), row(2, queries=4, stable=False), row(3, "failed", 9)]
    assert (success_rate(rows), stable_rate(rows)) == (Rate(2, 3), Rate(1, 3))
    assert stable_rate(rows, 2) == Rate(0, 3)


def test_queries_with_and_without_failures() -> None:
    assert cost(MIXED, 100) == Cost((10 + 40 + 100 + 100) / 4, 70, 4)
    assert success_cost(MIXED, 100) == Cost(25, 25, 2)
    # a limit that cuts off a success makes it a failure
    assert cost(MIXED, 20) == Cost((10 + 20 + 20 + 20) / 4, 20, 4)
    assert success_cost(MIXED, 20) == Cost(10, 10, 1)


def test_area_under_the_curve_is_exact() -> None:
    # a quarter of the attacked from 10 to 100, another from 40 to 100
    assert area_under_curve(MIXED, 100) == pytest.approx(0.25 * 0.9 + 0.25 * 0.6)
    assert area_under_curve(rows_of([], 5), 100) == 0
    assert area_under_curve(rows_of([1, 1], 0), 1000) == pytest.approx(0.999)


def test_area_is_the_mean_of_the_rates_at_every_query() -> None:
    rows = rows_of([random.Random(0).randint(1, 100) for _ in range(30)], 20)
    mean = sum(success_rate(rows, q).value for q in range(100)) / 100
    assert area_under_curve(rows, 100) == pytest.approx(mean)


def test_grid() -> None:
    grid = success_grid({2: rows_of([50], 3), 5: rows_of([5, 50, 90], 1)}, [10, 60, 100])
    assert grid == {
        (10, 2): Rate(0, 4),
        (60, 2): Rate(1, 4),
        (100, 2): Rate(1, 4),
        (10, 5): Rate(1, 4),
        (60, 5): Rate(2, 4),
        (100, 5): Rate(3, 4),
    }


def test_breakdown_by_class() -> None:
    rows = [
        row(1, "success", 10, label=3, target=0),
        row(2, "failed", 100, label=3, target=1),
        row(3, "error", 0, label=3, target=1),
        row(4, "unverified", 20, label=1, target=0),
        row(5, "skipped", 0, label=1, target=0),
    ]
    found = by_label(rows, 100)
    assert list(found) == [1, 3]
    assert (found[3].images, found[3].errors, found[3].unverified) == (3, 1, 0)
    assert (found[3].asr, found[3].robust) == (Rate(1, 2), Rate(1, 2))
    assert (found[3].cost, found[3].success_cost) == (Cost(55, 55, 2), Cost(10, 10, 1))
    assert found[3].area == pytest.approx(0.45)
    assert (found[1].asr, found[1].robust, found[1].unverified) == (Rate(0, 1), Rate(0, 2), 1)
    assert {target: n.asr for target, n in by_target(rows, 100).items()} == {
        0: Rate(1, 2),
        1: Rate(0, 1),
    }
    assert by_target(MIXED, 100) == {}


def test_spread_over_seeds() -> None:
    runs = [rows_of([9] * hits, 10 - hits) for hits in (2, 4, 9)]
    spread = over_seeds(runs, lambda rows: success_rate(rows, 100).value)
    assert (spread.min, spread.mean, spread.max) == pytest.approx((0.2, 0.5, 0.9))
    # squared distances 0.09, 0.01, 0.16
    assert spread.std == pytest.approx(math.sqrt(0.26 / 2))
    assert spread.seeds == 3


def test_spread_of_one_seed_has_no_deviation() -> None:
    spread = over_seeds([MIXED], lambda rows: cost(rows, 100).mean)
    assert spread.min == spread.mean == spread.max == 62.5
    assert math.isnan(spread.std)


def test_seeds_that_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="no runs"):
        over_seeds([], len)
    with pytest.raises(InputError, match=r"different problems \(10, 7 rows\): finish all"):
        over_seeds([rows_of([9], 9), rows_of([9], 6)], len)


def test_comparison_of_two_attacks() -> None:
    first, second = rows_of([10] * 30, 10), rows_of([20] * 20, 20)
    found = compare(first, second, 100)
    assert (found.pairs, found.images, found.unmatched) == (40, 40, (0, 0))
    assert found.difference.value == pytest.approx(0.25)
    assert found.ratio.value == pytest.approx((30 * 10 + 1000) / (20 * 20 + 2000))
    assert compare(first, second, 100, 15).difference.value == pytest.approx(0.75)
    # ten of forty decide: binomial(40, 1/4) / 40 lies in [5/40, 16/40] in 95 % of cases
    assert found.difference.low == pytest.approx(5 / 40, abs=1 / 40)
    assert found.difference.high == pytest.approx(16 / 40, abs=1 / 40)


def noisy(n, bias, seed):
    chance = random.Random(seed)
    draw = [min(100, int(chance.expovariate(bias / 50)) + 1) for _ in range(n)]
    return [row(i, "failed" if q == 100 else "success", q) for i, q in enumerate(draw)]


@pytest.mark.parametrize("seed", range(5))
def test_interval_contains_the_estimate_and_shrinks(seed) -> None:
    widths = []
    for n in (40, 640):
        found = compare(noisy(n, 1.3, seed), noisy(n, 1, seed + 50), 100, 60)
        for estimate in (found.difference, found.ratio):
            assert estimate.low < estimate.value < estimate.high
        widths.append(found.difference.high - found.difference.low)
    assert widths[1] == pytest.approx(widths[0] / 4, rel=0.35)


def test_swapped_attacks_give_the_mirrored_numbers() -> None:
    first, second = noisy(60, 1.3, 1), noisy(60, 1, 2)
    one = compare(first, second, 100, 50)
    two = compare(second[::-1], first, 100, 50)
    assert two.difference.value == -one.difference.value
    assert (two.difference.low, two.difference.high) == (-one.difference.high, -one.difference.low)
    assert two.ratio.value == pytest.approx(1 / one.ratio.value)
    assert two.ratio.low == pytest.approx(1 / one.ratio.high)
    assert two.ratio.high == pytest.approx(1 / one.ratio.low)


def test_comparison_is_repeatable_and_the_seed_matters() -> None:
    first, second = noisy(60, 1.3, 1), noisy(60, 1, 2)
    assert compare(first, second, 100) == compare(first, second, 100)
    assert compare(first, second, 100).ratio != compare(first, second, 100, seed=1).ratio


def test_an_attack_compared_with_itself() -> None:
    rows = noisy(30, 1, 0)
    found = compare(rows, rows, 100)
    assert (found.difference.low, found.difference.high) == (0, 0)
    assert (found.ratio.low, found.ratio.high) == (1, 1)


def test_targets_of_an_image_are_drawn_together() -> None:
    """Copies of the same outcome under one image are no new evidence."""
    first, second = noisy(40, 1.3, 1), noisy(40, 1, 2)

    def copied(rows):
        return [
            row(100 * i + k, r.status, r.queries, image=r.image, target=k)
            for i, r in enumerate(rows)
            for k in range(9)
        ]

    once, nine = compare(first, second, 100), compare(copied(first), copied(second), 100)
    assert (nine.pairs, nine.images) == (360, 40)
    assert nine.difference.value == pytest.approx(once.difference.value)
    width = nine.difference.high - nine.difference.low
    assert width == pytest.approx(once.difference.high - once.difference.low, rel=0.15)


def test_only_problems_that_both_attacked_are_compared() -> None:
    first, second = rows_of([10] * 20, 0), rows_of([20] * 20, 0, start=5)
    second[0] = row(5, "error", 3)
    second[1] = row(6, "skipped", 0)
    found = compare(first, second, 100)
    assert (found.pairs, found.unmatched) == (13, (7, 7))
    assert found.ratio.value == 0.5


def test_comparisons_that_cannot_be_made() -> None:
    first = rows_of([10] * 20, 0)
    with pytest.raises(InputError, match="of 20 and 20 rows, 0 match .* 0 images"):
        compare(first, rows_of([10] * 20, 0, start=50), 100)
    with pytest.raises(InputError, match="3 match .* needs 10 images; run both attacks on the"):
        compare(first, rows_of([10] * 20, 0, start=17), 100)
    same = [row(i, queries=4, image="cat", target=i) for i in range(50)]
    with pytest.raises(InputError, match="50 match .* 1 images"):
        compare(same, same, 100)
    with pytest.raises(InputError, match="0 match"):
        compare(ERRORS, ERRORS, 100)
    with pytest.raises(InputError, match="20 problems occur twice"):
        compare(first + first, first, 100)
    with pytest.raises(InputError, match="queries is 101: give a number from 1 to the limit 100"):
        compare(first, first, 100, 101)
    with pytest.raises(InputError, match="limit is 0"):
        compare(first, first, 0)


@pytest.mark.parametrize("rows", [[], ERRORS])
def test_numbers_of_nothing(rows) -> None:
    found = Summary.of(rows, 100)
    assert (found.asr, found.robust) == (Rate(0, 0), Rate(0, 0))
    assert found.cost.count == found.success_cost.count == 0
    for value in (found.cost.mean, found.cost.median, found.success_cost.mean, found.area):
        assert math.isnan(value)
    assert math.isnan(over_seeds([rows, rows], lambda r: Summary.of(r, 100).area).mean)
    assert [flag.name for flag in flags(rows, 100, rows)] == (["errors"] if rows else [])


def test_all_successes_and_all_failures() -> None:
    found = Summary.of(rows_of([4, 4, 10], 0), 100)
    assert (found.asr, found.robust) == (Rate(3, 3), Rate(0, 3))
    assert found.cost == found.success_cost == Cost(6, 4, 3)
    found = Summary.of(rows_of([], 3), 100)
    assert (found.asr, found.robust, found.cost.mean) == (Rate(0, 3), Rate(3, 3), 100)
    assert math.isnan(found.success_cost.mean)


def names(*args) -> list[str]:
    return [flag.name for flag in flags(*args)]


@pytest.mark.parametrize(
    ("late", "count", "raised"),
    [
        (5, 100, True),  # Wilson interval from 2.15 %
        (4, 100, False),  # 4 %, but from 1.57 %
        (2, 20, True),  # 10 %, from 2.8 %
        (1, 20, False),  # 5 %, from 0.9 %
        (25, 1000, False),  # 2.5 %, from 1.7 %
        (40, 1000, True),  # 4 %, from 2.95 %
        (0, 100, False),
    ],
)
def test_not_converged(late, count, raised) -> None:
    rows = rows_of([50] * (count // 2) + [51] * late, count - count // 2 - late)
    assert names(rows, 100) == (["not-converged"] if raised else [])


def test_what_has_fooled_all_images_has_converged() -> None:
    late = [50] * 20 + [51] * 20
    assert names(rows_of(late, 1), 100) == ["not-converged"] and not names(rows_of(late, 0), 100)


def test_not_converged_says_from_where_to_where() -> None:
    (flag,) = flags(rows_of([5] * 40 + [80] * 20, 40), 100)
    assert "from 40.0% at 50 queries to 60.0% at 100" in flag.text


def test_randomised() -> None:
    def rows(lucky):
        return [row(i, queries=4, stable=i >= lucky) for i in range(100)]

    # the Wilson interval of 9 in 100 begins at 4.8 %, that of 10 at 5.5 %
    assert [names(rows(lucky), 100) for lucky in (0, 9, 10)] == [[], [], ["randomised"]]
    (flag,) = flags(rows(40), 100)
    assert "100.0% were fooled once, but only 60.0%" in flag.text


@pytest.mark.parametrize(
    ("wins", "losses", "raised"),
    [(6, 0, True), (5, 0, False), (20, 5, True), (12, 8, False), (0, 20, False), (0, 0, False)],
)
def test_black_box_beats_white_box(wins, losses, raised) -> None:
    black = rows_of([10] * (30 + wins), 60 - wins)
    fooled = {*range(30), *range(90 - losses, 90)}
    white = [row(i, *(("success", 500) if i in fooled else ("failed", 1000))) for i in range(90)]
    assert names(black, 100, white) == (["black-box-beats-white-box"] if raised else [])
    assert "black-box-beats-white-box" not in names(white, 1000, white)


def test_black_box_that_wins_on_one_image_only() -> None:
    """Nine targets of one image out of eleven are one piece of evidence, not nine."""

    def rows(status):
        other = [row(i, "failed", 100) for i in range(10)]
        return other + [row(10 + k, status, 10, image="one", target=k) for k in range(9)]

    assert names(rows("success"), 100, rows("failed")) == []


def test_black_box_with_too_few_images_to_compare() -> None:
    assert names(rows_of([3] * 9, 0), 100, rows_of([], 9)) == []


def test_errors_are_flagged() -> None:
    (flag,) = flags(MIXED, 100)
    assert flag.name == "errors"
    assert "of 6 images, the victim failed on 1, " in flag.text
    assert "1 reported successes did not pass" in flag.text
