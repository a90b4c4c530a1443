"""Claims of the paper's text, on rows whose verdict can be counted by hand."""

import math

import pytest
from pydantic import ValidationError
from test_statistics import row

from brusle.evaluation.paper.claims import MARGIN, Reading, check_claim
from brusle.evaluation.paper.presets import Claim
from brusle.evaluation.statistics import Rate

ABOVE = Claim(line="A", order="above", other="B")
LEVEL = Claim(line="A", order="level", other="B")
ZERO = Claim(line="A", order="zero")


def reading(wins, count, queries=100, *, after=50, targets=1):
    """The first ``wins`` of ``count`` problems succeed; each ``targets`` of them share an image."""
    return Reading(
        [
            row(
                at,
                "success" if at < wins else "failed",
                after if at < wins else queries,
                image=str(at // targets),
            )
            for at in range(count)
        ],
        queries,
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "count", "verdict"),
    [
        (40, 10, 50, "held"),
        (10, 40, 50, "contradicted"),
        (26, 25, 50, "within noise"),
        (25, 25, 50, "within noise"),
        # the bootstrap alone would call this an advantage; the exact p of McNemar is 0.125
        (4, 0, 60, "within noise"),
        (8, 0, 9, "within noise"),  # too few images
    ],
)
def test_above(ours, theirs, count, verdict) -> None:
    finding = check_claim(ABOVE, 10, reading(ours, count), reading(theirs, count))
    assert finding.verdict == verdict
    assert finding.value == pytest.approx(100 * (ours - theirs) / count)
    assert (finding.low is None) == (count < 10)
    if finding.low is not None and finding.high is not None:
        assert finding.low <= finding.value <= finding.high
    mirrored = check_claim(ABOVE, 10, reading(theirs, count), reading(ours, count))
    swapped = {"held": "contradicted", "contradicted": "held"}.get(verdict, verdict)
    assert mirrored.verdict == swapped


def test_targets_of_an_image_are_not_independent() -> None:
    """Nine more successes: of nine images they decide, of one image they do not."""
    many = check_claim(ABOVE, 10, reading(40, 90), reading(31, 90))
    one = check_claim(ABOVE, 10, reading(36, 90, targets=9), reading(27, 90, targets=9))
    assert (many.verdict, one.verdict) == ("held", "within noise")


@pytest.mark.parametrize(
    ("ours", "theirs", "count", "verdict"),
    [
        (50, 50, 100, "held"),
        (51, 50, 100, "held"),
        (80, 50, 100, "contradicted"),
        (50, 80, 100, "contradicted"),
        (60, 50, 100, "within noise"),  # 10 points, and the interval goes beyond
        (20, 20, 20, "within noise"),  # no difference, but twenty images cannot show it
    ],
)
def test_level(ours, theirs, count, verdict) -> None:
    assert check_claim(LEVEL, 10, reading(ours, count), reading(theirs, count)).verdict == verdict


def test_zero() -> None:
    assert Rate(0, 35).interval[1] <= MARGIN < Rate(0, 34).interval[1]
    assert check_claim(ZERO, 10, reading(0, 35)).verdict == "held"
    assert check_claim(ZERO, 10, reading(0, 34)).verdict == "within noise"
    assert check_claim(ZERO, 10, reading(0, 90, targets=9)).verdict == "within noise"  # ten images
    found = check_claim(ZERO, 10, reading(1, 1000))
    assert found.verdict == "contradicted" and found.value == pytest.approx(0.1)
    assert check_claim(ZERO, 10, reading(1, 1000, 100, after=101)).verdict == "held"  # too late
    nothing = check_claim(ZERO, 10, Reading([row(at, "error") for at in range(50)], 100))
    assert nothing.verdict == "within noise" and math.isnan(nothing.value)
    assert nothing.as_dict()["value"] is None


def test_each_line_is_read_at_its_own_number_of_queries() -> None:
    """The second attack needs 1500 queries, which count at 2000 and not at 1000."""
    first = reading(30, 50)
    late = check_claim(ABOVE, 10, first, reading(30, 50, 2000, after=1500))
    early = check_claim(ABOVE, 10, first, Reading(reading(30, 50, 2000, after=1500).rows, 1000))
    assert (late.value, late.queries) == (0.0, (100, 2000))
    assert (early.value, early.queries) == (60.0, (100, 1000))
    assert (late.verdict, early.verdict) == ("within noise", "held")


def test_text() -> None:
    assert [claim.text for claim in (ABOVE, LEVEL, ZERO)] == [
        "A above B",
        "A level with B",
        "A never succeeds",
    ]
    for values in ({"order": "zero", "other": "B"}, {"order": "above"}):
        with pytest.raises(ValidationError, match="is about another line"):
            Claim(line="A", **values)
