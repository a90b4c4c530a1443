"""What a status counts as: the table of docs/metrics.md, a result, and stored rows agree."""

import re
from pathlib import Path
from typing import get_args

import pytest
import torch
from models import integer_model, own_labels, random_images

from brusle.attacks import BruSLe
from brusle.evaluation.statistics import (
    cost,
    robust_accuracy,
    stable_rate,
    success_rate,
    success_rate_of,
)
from brusle.evaluation.storing.rows import rows_of
from brusle.outcomes import ANSWERED, ATTACKED, Status, share

METRICS = Path(__file__).parents[1] / "docs" / "metrics.md"
COUNTED = {"a hit": (1, 1), "a miss": (0, 1), "not counted": (0, 0)}


def documented() -> dict[str, list[str]]:
    """For each status what the table says of ASR, robust accuracy and queries."""
    lines = re.findall(r"^\| `(\w+)`[^|]*\|(.+)\|$", METRICS.read_text(), re.MULTILINE)
    return {
        status: [cell.strip() for cell in cells.split("|")]
        for status, cells in lines
        if status in get_args(Status)
    }


def of_status(status: Status):
    model = integer_model((3, 6, 6), 4)
    images = random_images(1, (3, 6, 6))
    result = BruSLe(2, 9)(model.victim(), images, own_labels(model, images))
    result.status, result.queries = [status], torch.tensor([4])
    result.stable = torch.tensor([status == "success"])
    return result


def test_the_docs_speak_of_every_status() -> None:
    assert set(documented()) == set(get_args(Status))


@pytest.mark.parametrize("status", get_args(Status))
def test_a_status_counts_as_documented(status) -> None:
    asr, robust, queries = documented()[status]
    result = of_status(status)
    rows = rows_of(result, range(1), result.names)
    for rate, said in (
        (success_rate(rows), asr),
        (stable_rate(rows), asr),
        (success_rate_of({status: 1}), asr),
        (robust_accuracy(rows), robust),
    ):
        assert (rate.hits, rate.count) == COUNTED[said]
    assert result.asr() == pytest.approx(success_rate(rows).value, nan_ok=True)
    assert result.asr([9])[9] == pytest.approx(success_rate(rows, 9).value, nan_ok=True)
    assert result.stable_asr == pytest.approx(stable_rate(rows).value, nan_ok=True)
    assert result.robust_accuracy == pytest.approx(robust_accuracy(rows).value, nan_ok=True)
    expected = {"its queries": 4, "the limit": 9, "not counted": share(0, 0)}[queries]
    assert cost(rows, 9).mean == pytest.approx(expected, nan_ok=True)
    assert (status in ATTACKED, status in ANSWERED) == (
        asr != "not counted",
        robust != "not counted",
    )
