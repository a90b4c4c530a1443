import math

import pytest
import torch
from models import integer_model, own_labels, random_images

from brusle.attacks import BruSLe
from brusle.evaluation.statistics import Rate, Summary
from brusle.evaluation.storing.rows import rows_of


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval_as_published(hits, count, low, high) -> None:
    assert Rate(hits, count).interval == pytest.approx((low, high), abs=5e-5)


def test_rate_of_nothing() -> None:
    assert math.isnan(Rate(0, 0).value)
    assert Rate(0, 0).as_dict()["value"] is None


def test_summary_counts_failures_as_the_limit_and_errors_not_at_all() -> None:
    model = integer_model((3, 12, 12), 5)
    images = random_images(4, (3, 12, 12))
    result = BruSLe(3, 40)(model.victim(), images, own_labels(model, images))
    # as if: a success after 5, a failure, an image wrong from the start, an error
    result.status = ["success", "failed", "skipped", "error"]
    result.queries = torch.tensor([5, 40, 0, 17])
    summary = Summary.of(rows_of(result, range(4), result.names), 40, at=(4, 5))
    assert (summary.images, summary.attacked, summary.errors) == (4, 2, 1)
    assert (summary.asr.hits, summary.asr.count) == (1, 2)
    assert [summary.asr_at[q].hits for q in (4, 5)] == [0, 1]
    assert (summary.robust.hits, summary.robust.count) == (1, 3)
    assert summary.cost.mean == summary.cost.median == 22.5
    assert result.asr() == 0.5
    assert result.asr(at=[4, 5]) == {4: 0.0, 5: 0.5}
    assert result.robust_accuracy == pytest.approx(1 / 3)
