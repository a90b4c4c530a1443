"""Searches for the fewest pixels: what their rows say, against brute force and closed forms."""

import csv
import json
import math
import random

import pytest
import torch
from models import Counting, integer_model, own_labels, random_images
from test_statistics import row as made_row

import brusle
from brusle.attacks import PGD0, BruSLe, Ensemble, Minimal, Restarts, SparseRS
from brusle.errors import InputError
from brusle.evaluation.statistics import (
    Match,
    PixelsNeeded,
    Rate,
    Summary,
    by_label,
    compare_matches,
    flags,
    mean_needed,
    robust_accuracy,
    success_rate,
)
from brusle.evaluation.storing.export import export_rows

SHARES = {"lower": 0.25, "median": 0.5, "upper": 0.75}


def row(problem, status="success", pixels=3, **more):
    return made_row(problem, status, 100, pixels=pixels, **more)


def some_rows(n, seed, limit):
    """Rows of all kinds; a failure has changed pixels, too."""
    chance = random.Random(seed)
    kinds = ("success", "success", "success", "failed", "unverified", "skipped", "error")
    return [
        row(i, chance.choice(kinds), chance.randint(1, limit), label=i % 2, image=str(i // 2))
        for i in range(n)
    ]


@pytest.mark.parametrize(("n", "seed"), [(1, 0), (7, 1), (40, 2), (41, 3), (300, 4)])
def test_numbers_are_those_of_brute_force(n, seed) -> None:
    limit = 9
    rows = some_rows(n, seed, limit)
    found = PixelsNeeded.of(rows, limit)
    attacked = [r for r in rows if r.status in ("success", "failed", "unverified")]
    wins = [r.pixels for r in rows if r.status == "success"]
    if not attacked:
        assert math.isnan(found.median.value) and math.isnan(found.bound)
        return
    for name, share in SHARES.items():
        estimate = getattr(found, name)
        rates = {p: Rate(sum(w <= p for w in wins), len(attacked)) for p in range(1, limit + 1)}
        assert estimate.value == min(
            (p for p in rates if rates[p].value >= share), default=math.inf
        )
        low, high = (
            min((p for p in rates if rates[p].interval[end] >= share), default=math.inf)
            for end in (1, 0)
        )
        assert (estimate.low, estimate.high) == (low, high)
    assert found.mean == pytest.approx(sum(wins) / len(wins)) if wins else math.isnan(found.mean)
    least = sum(wins) + (limit + 1) * (len(attacked) - len(wins))
    assert found.bound == pytest.approx(least / len(attacked)) == mean_needed(rows, limit)


def test_robust_accuracy_over_pixels_is_exact_at_every_number() -> None:
    rows = some_rows(200, 5, 9)
    found = PixelsNeeded.of(rows, 9).robust
    answered = [r for r in rows if r.status != "error"]
    rate = None
    for p in range(10):
        rate = found.get(p, rate)  # steps where it falls
        # a reported success counts against the victim as soon as so many pixels may be changed
        standing = [
            r for r in answered
            if r.status == "failed" or (r.status in ("success", "unverified") and r.pixels > p)
        ]  # fmt: skip
        assert rate == Rate(len(standing), len(answered)) == robust_accuracy(rows, pixels=p)
    clean = sum(r.status != "skipped" for r in answered)
    assert found[0] == Rate(clean, len(answered))  # no pixel changed: clean accuracy
    assert found[9] == robust_accuracy(rows)


def test_quartiles_among_images_that_were_not_fooled_are_more_than_the_limit() -> None:
    found = PixelsNeeded.of([row(i, pixels=2) for i in range(4)] + [row(9, "failed")] * 6, 5)
    assert (found.lower.value, found.median.value, found.upper.value) == (2, math.inf, math.inf)
    assert (found.mean, found.bound) == (2, (4 * 2 + 6 * 6) / 10)
    told = found.as_dict()
    assert told["median"]["value"] is None and told["limit"] == 5
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize("median", [2, 5])
def test_the_interval_of_the_median_holds_it_about_as_often_as_it_says(median) -> None:
    """Uniform over 1 to twice the median minus 1, whose median is known."""
    chance, hits = random.Random(median), 0
    for _ in range(400):
        needs = [chance.randint(1, 2 * median - 1) for _ in range(45)]
        found = PixelsNeeded.of([row(i, pixels=p) for i, p in enumerate(needs)], 40).median
        hits += found.low <= median <= found.high
    assert hits >= 0.93 * 400


def test_a_summary_has_no_numbers_that_follow_from_the_queries() -> None:
    rows = [row(i, pixels=1 + i % 4, label=i % 2) for i in range(20)] + [row(99, "failed")]
    found = Summary.of(rows, 100, at=(10, 50, 100), fewest=8)
    assert found.asr_at == {} and (found.asr, found.robust) == (Rate(20, 21), Rate(1, 21))
    for value in (found.cost.mean, found.success_cost.median, found.area):
        assert math.isnan(value)
    assert found.needed == PixelsNeeded.of(rows, 8)
    classes = by_label(rows, 100, 8)
    for label in (0, 1):
        assert classes[label].needed == PixelsNeeded.of([r for r in rows if r.label == label], 8)
    assert Summary.of(rows, 100).needed is None


def test_queries_do_not_say_that_a_search_has_not_converged() -> None:
    # all but one of them after 100 of 100 queries
    rows = [row(i, status="failed" if i == 0 else "success") for i in range(40)]
    assert [flag.name for flag in flags(rows, 100)] == ["not-converged"]
    assert flags(rows, 100, minimal=True) == []


def test_searches_are_compared_by_the_pixels_needed() -> None:
    first = [row(i, pixels=2) for i in range(15)] + [row(15 + i, "failed") for i in range(5)]
    second = [row(i, pixels=4 + 2 * (i % 2)) for i in range(20)]
    found = compare_matches([Match(first, second, 100, fewest=8)])
    mine, theirs = 15 * 2 + 5 * 9, 10 * 4 + 10 * 6
    assert found.ratio.value == pytest.approx(mine / theirs)
    assert found.excess.value == pytest.approx((mine - theirs) / 20)
    assert found.difference.value == pytest.approx(-5 / 20)
    assert found.robust.value == pytest.approx(5 / 20)
    # of a lower limit, images that need more count as not fooled
    low = compare_matches([Match(first, second, 100, fewest=5)])
    assert low.excess.value == pytest.approx((15 * 2 + 5 * 6 - 10 * 4 - 10 * 6) / 20)
    assert low.difference.value == pytest.approx((15 - 10) / 20)


def test_the_interval_of_the_difference_is_that_of_a_plain_bootstrap() -> None:
    chance = random.Random(3)
    first = [row(i, pixels=chance.randint(1, 8)) for i in range(60)]
    second = [row(i, pixels=chance.randint(1, 5)) for i in range(60)]
    found = compare_matches([Match(first, second, 100, fewest=8)]).excess
    differences = [a.pixels - b.pixels for a, b in zip(first, second, strict=True)]
    means = sorted(sum(chance.choices(differences, k=60)) / 60 for _ in range(4000))
    assert (found.low, found.high) == pytest.approx((means[100], means[3900]), abs=0.12)


def test_seeds_are_no_new_images() -> None:
    """The same outcome with three seeds says no more than with one."""
    chance = random.Random(3)
    first = [row(i, pixels=chance.randint(1, 8)) for i in range(60)]
    second = [row(i, pixels=chance.randint(1, 5)) for i in range(60)]
    match = Match(first, second, 100, fewest=8)
    once, thrice = compare_matches([match]), compare_matches([match] * 3)
    assert (once.pairs, thrice.pairs, thrice.images) == (60, 180, 60)
    assert thrice.excess == once.excess and thrice.robust == once.robust


def test_limits_are_checked() -> None:
    rows = [row(i) for i in range(20)]
    with pytest.raises(InputError, match="queries is 101"):
        compare_matches([Match(rows, rows, 100, 101)])


WEIGHTS = (8, 7, 6, 5, 4, 3, 2, 1)
THRESHOLDS = (1, 8, 9, 15, 16, 20, 22, 27, 31, 34, 36)


def coded_model() -> Counting:
    """Linear over pixels; the level of the first pixel, 100 + k, says which threshold is meant."""
    full = torch.zeros(25, dtype=torch.float64)
    full[1 : 1 + len(WEIGHTS)] = torch.tensor(WEIGHTS).double()

    def scores(images: torch.Tensor) -> torch.Tensor:
        flat = images.double()[:, 0].flatten(1)
        code = (flat[:, 0] * 255).round().long() - 100
        table = torch.tensor([*THRESHOLDS, 10_000]).double()
        known = (code >= 0) & (
            code < len(THRESHOLDS)
        )  # a first pixel that was changed helps nobody
        threshold = table[torch.where(known, code, len(THRESHOLDS))]
        gained = ((flat - 128 / 255) * 255 / 127)[:, 1:] @ full[1:]
        return torch.stack([threshold - 0.5, gained], 1)

    return Counting(scores)


def fewest(threshold: int) -> int:
    """Add up the largest weights."""
    return next(m for m in range(1, 9) if sum(WEIGHTS[:m]) >= threshold)


def test_a_linear_model_needs_as_many_pixels_as_the_closed_form_says(tmp_path) -> None:
    limit, n = 5, len(THRESHOLDS)
    images = torch.full((n, 1, 5, 5), 128 / 255)
    images[:, 0, 0, 0] = (100 + torch.arange(n)) / 255
    data = (images, torch.zeros(n, dtype=torch.int64))
    attack = Minimal(PGD0(limit, 30), 150)
    run = brusle.evaluate(coded_model().victim(), data, [attack], "untargeted", tmp_path)
    needs = [fewest(threshold) for threshold in THRESHOLDS]
    assert needs == [1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8]
    (summary,) = run.summaries()
    assert summary.needed is not None and summary.asr == Rate(8, n)
    quartiles = [getattr(summary.needed, name).value for name in SHARES]
    assert quartiles == [2, 3, math.inf]  # the 3rd, 6th and 9th of 11
    assert summary.needed.mean == pytest.approx(sum(needs[:8]) / 8)
    for p, rate in summary.needed.robust.items():
        assert rate == Rate(sum(need > p for need in needs), n)
    assert run.flags == {}

    told = json.loads((tmp_path / "run.json").read_text())["settings"][0]
    assert told["minimal"] and told["flags"] == {} and told["summary"]["asr_at"] == {}
    assert told["summary"]["pixels_needed"]["upper_quartile"]["value"] is None
    assert told["summary"]["pixels_needed"]["robust_accuracy_within"]["3"]["hits"] == 5
    expected = [need if need <= limit else None for need in needs]
    assert [r["pixels_needed"] for r in run.rows()] == expected
    with (tmp_path / "rows.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["pixels_needed"] for line in lines] == [str(x or "") for x in expected]


def test_a_stored_setting_says_whether_it_looks_for_the_fewest_pixels(tmp_path) -> None:
    model = integer_model((3, 6, 6), 4)
    images = random_images(12, (3, 6, 6))
    plain = BruSLe(3, 8)
    attacks = [plain, Minimal(plain, 9), Restarts(plain, 2), Ensemble([plain, SparseRS(3, 8)])]
    data = (images, own_labels(model, images))
    brusle.evaluate(model.victim(), data, attacks, "untargeted", tmp_path)
    run = brusle.Run.open(tmp_path)
    assert [setting.minimal for setting in run.settings] == [False, True, False, False]
    assert [setting.fewest for setting in run.settings] == [None, 3, None, None]
    assert [summary.needed is None for summary in run.summaries()] == [True, False, True, True]
    export_rows(tmp_path, tmp_path / "all.json")
    for line in json.loads((tmp_path / "all.json").read_text()):
        searched = line["minimal"] and line["status"] == "success"
        assert line["pixels_needed"] == (line["pixels"] if searched else None)
    parquet = pytest.importorskip("pyarrow.parquet")
    export_rows(tmp_path, tmp_path / "all.parquet")
    kind = parquet.read_table(tmp_path / "all.parquet").schema.field("pixels_needed").type
    assert str(kind) == "int64"


def test_success_within_pixels() -> None:
    rows = [row(1, pixels=2), row(2, pixels=5), row(3, "failed", pixels=1), row(4, "unverified")]
    assert [success_rate(rows, pixels=p).hits for p in (1, 2, 4, 5)] == [0, 1, 1, 2]
