"""Evaluations of a service that are killed, again and again: nothing is asked, or paid, twice."""

import pytest
from rehearsing import (
    answered,
    brusle,
    evaluation,
    received,
    rows,
    service,
    spent,
    started,
    stop_after,
    totals,
)

pytestmark = pytest.mark.slow

CONCURRENCY = 4
# answers of the service after which a life ends: in the first look, and anywhere in the attacks
KILLS = (1, 5, 9, 17, 26, 40, 58, 77, 90, 104)


def test_ten_kills_and_nothing_is_paid_twice(quiet, tmp_path) -> None:
    books, out = tmp_path / "books", tmp_path / "run"
    with service(books) as ready:
        words = evaluation(ready.victim, out, "--concurrency", CONCURRENCY)
        for calls in KILLS:
            assert stop_after(started(*words), books, calls).returncode == -9
        said = brusle(*words)
    assert said.returncode == 0, said.stderr
    assert rows(out) == rows(quiet / "run")
    again = answered(books) - answered(quiet / "books")
    assert again.total() <= len(KILLS) * CONCURRENCY
    # what was sent may be lost on its way at a kill, but nothing came that is not in our books
    assert 0 <= totals(out).sent - received(books) <= len(KILLS) * CONCURRENCY
    assert totals(out).lost >= again.total()
    assert spent(out) == totals(out), "the books of lives that were killed are somebody's, too"
