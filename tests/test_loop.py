"""What a session hands over, and when."""

import pytest
import torch
from models import integer_model, own_labels, random_images

from brusle.attacks import BruSLe, Ensemble, Minimal, Pointwise, Restarts
from brusle.problems import Problems
from brusle.session import run
from brusle.victims import wrap

SHAPE = (3, 10, 10)
ATTACKS = {
    "brusle": BruSLe(3, 30),
    "pointwise": Pointwise(20, 60),
    "restarts": Restarts(BruSLe(3, 15), 2),
    "ensemble": Ensemble([BruSLe(3, 15), BruSLe(3, 15, palette="uniform")]),
    "minimal": Minimal(BruSLe(3, 15), 30),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_every_problem_is_settled_once_and_as_it_stays(name) -> None:
    model = integer_model(SHAPE, 5)
    images = random_images(50, SHAPE)
    labels = own_labels(model, images)
    labels[:4] = (labels[:4] + 1) % 5  # not attacked, and settled all the same
    settled: dict[int, tuple] = {}

    def row(result, at: int) -> tuple:
        image = result.images[at].numpy().tobytes()
        numbers = (int(result.queries[at]), repr(float(result.losses[at])), int(result.labels[at]))
        return result.status[at], image, *numbers, tuple(result.ledger.row(at).items())

    def remember(result, rows: list[int]) -> None:
        assert not settled.keys() & set(rows)
        settled.update({at: row(result, at) for at in rows})

    problems = Problems.make(images, labels)
    result = run(ATTACKS[name], model.victim(), problems, batch_size=20, on_settled=remember)
    assert {"success", "skipped"} <= set(result.status)
    assert settled == {at: row(result, at) for at in range(50)}


def test_problems_are_settled_while_others_are_still_attacked() -> None:
    model = integer_model(SHAPE, 5)
    images = random_images(60, SHAPE)
    problems = Problems.make(images, own_labels(model, images))
    groups: list[tuple[int, int]] = []
    run(
        BruSLe(3, 30),
        model.victim(),
        problems,
        batch_size=10,
        on_settled=lambda result, rows: groups.append((len(rows), model.seen)),
    )
    assert sum(size for size, _ in groups) == 60
    assert len(groups) >= 3
    assert groups[0][1] < model.seen / 2


@pytest.mark.parametrize("round_takes", [0.3, 5.0])
@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_finished_waits_no_longer_than_two_seconds_or_a_round(
    name, round_takes, monkeypatch
) -> None:
    model = integer_model(SHAPE, 5)
    images = random_images(50, SHAPE)
    problems = Problems.make(images, own_labels(model, images))
    now, settled = 0.0, 0
    since: dict[int, float] = {}  # when so many were finished, at the first time

    def slow(x: torch.Tensor) -> torch.Tensor:
        nonlocal now
        now += round_takes
        return model.function(x)

    def watch(progress) -> None:
        for count in range(settled + 1, progress.finished + 1):
            assert now - since.setdefault(count, now) <= 2, f"{settled} of {count} are settled"

    def settle(result, rows: list[int]) -> None:
        nonlocal settled
        settled += len(rows)

    monkeypatch.setattr("brusle.batching.time.monotonic", lambda: now)
    victim = wrap(slow, output="logits")
    run(ATTACKS[name], victim, problems, batch_size=60, on_progress=watch, on_settled=settle)
    assert settled == 50


def test_scores_and_labels_are_those_of_the_final_image() -> None:
    model = integer_model(SHAPE, 5)
    images = random_images(30, SHAPE)
    result = BruSLe(3, 30)(model.victim(), images, own_labels(model, images))
    assert torch.equal(result.scores, model.function(result.images))
    assert torch.equal(result.labels, result.scores.argmax(1))
    assert (result.times > 0).all()
