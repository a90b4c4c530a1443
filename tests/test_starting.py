"""Where attacks begin that need an adversarial image to begin with."""

import pytest
import torch
from models import Counting, integer_model, own_labels, random_images

import brusle
from brusle.attacks.pointwise import Pointwise
from brusle.data import Dataset, as_source
from brusle.errors import DataError, InputError
from brusle.evaluation.running.starts import CANDIDATES, StartingImages
from brusle.problems import Problems
from brusle.starting import MOST_TRIES, noise

SHAPE = (3, 8, 8)


def problem(n: int = 6, classes: int = 4):
    model = integer_model(SHAPE, classes)
    images = random_images(n, SHAPE)
    return model, images, own_labels(model, images)


def stubborn(truth: int, gives_in_after: int) -> Counting:
    """A victim that says ``truth`` to so many images that differ from grey, then something else."""
    asked = {"noise": 0}

    def scores(images: torch.Tensor) -> torch.Tensor:
        answers = torch.zeros(len(images), 3)
        answers[:, truth] = 1
        for at in range(len(images)):
            if (images[at] != 0.5).any():
                asked["noise"] += 1
                if asked["noise"] > gives_in_after:
                    answers[at] = torch.tensor([0.0, 0.0, 2.0])
        return answers

    return Counting(scores)


def test_a_targeted_attack_without_a_start_is_refused_before_any_query() -> None:
    model, images, labels = problem()
    with pytest.raises(InputError, match="Pointwise starts at an image of the target class"):
        Pointwise(3, 50)(model.victim(), images, labels, (labels + 1) % 4)
    assert model.seen == 0


def test_a_start_that_is_not_adversarial_is_an_error_of_that_image_only() -> None:
    model, images, labels = problem()
    targets = (labels + 1) % 4
    pool = random_images(500, SHAPE, seed=3)
    seen = own_labels(model, pool)
    starts = torch.stack([pool[(seen == t).nonzero()[0, 0]] for t in targets])
    starts[2] = images[2]
    result = Pointwise(3, 50)(model.victim(), images, labels, targets, starts=starts)
    wrong = f"seen as class {int(labels[2])} and not as the target {int(targets[2])}"
    assert result.status[2] == "error" and wrong in result.errors[2]
    assert int(result.queries[2]) == 1
    assert "error" not in result.status[:2] + result.status[3:]
    assert int(result.ledger.total.sum()) == model.seen


def test_the_start_is_the_first_query_and_may_be_all_it_takes() -> None:
    model, images, labels = problem()
    starts = images.clone()
    for at in range(len(images)):  # one pixel of noise, as soon as that is enough
        for attempt in range(2000):
            start = images[at].clone()
            start[:, attempt % 8, attempt // 8 % 8] = torch.rand(3).round()
            if int(model.function(start[None]).argmax()) != int(labels[at]):
                starts[at] = start
                break
    near = (starts != images).flatten(1).any(1)
    assert near.sum() >= 3
    attack = Pointwise(1, 50)
    result = attack(model.victim(), images[near], labels[near], starts=starts[near])
    assert result.success.all()
    assert (result.queries == 1).all() and (result.ledger.initial == 1).all()


@pytest.mark.parametrize(
    ("tries", "limit", "status", "queries"),
    [
        (0, 5, "success", None),
        (3, 200, "success", None),
        (10**6, 5, "failed", 5),  # the limit ends it
        (10**6, 200, "error", MOST_TRIES),
    ],
)
def test_noise_is_tried_until_it_is_adversarial(tries, limit, status, queries) -> None:
    model = stubborn(1, tries)
    image = torch.full((1, 1, 4, 4), 0.5)
    result = Pointwise(16, limit)(model.victim(), image, [1])
    assert result.status == [status]
    assert int(result.queries[0]) == (tries + 1 if queries is None else queries)
    assert int(result.ledger.total.sum()) == model.seen
    if status == "error":
        assert "noise images were all seen as the true class" in result.errors[0]


def test_noise_changes_a_share_of_the_pixels_and_is_on_levels() -> None:
    images = torch.full((40, 3, 16, 16), 0.3)
    problems = Problems.make(images, torch.zeros(40, dtype=torch.int64), ids=range(40))
    stream = brusle.rng.streams(0, problems.ids)
    for attempt, share in ((0, 1.0), (1, 0.5), (2, 0.25), (5, 0.25)):
        made = noise(problems, stream, attempt)
        changed = (made != images).any(1)
        assert abs(float(changed.float().mean()) - share) < 0.02
        values = made[changed[:, None].expand_as(made)]
        assert torch.allclose(values * 255, (values * 255).round(), atol=1e-4)
        corners = ((values == 0) | (values == 1)).float().mean()
        assert corners == 1 if attempt < 3 else corners < 0.02


def test_starting_images_are_of_the_target_class_and_counted() -> None:
    model, images, _ = problem(60)
    labels = own_labels(model, images)
    # some of the pool are misclassified, but fewer than are asked of a class
    labels[::8] = (labels[::8] + 1) % 4
    assert len(labels[::8]) < CANDIDATES
    pool = Dataset("pool", images, labels, (), tuple(map(str, range(60))))
    model.seen = 0
    starting = StartingImages(as_source(pool), model.victim(), seed=1, batch_size=8)
    targets = torch.arange(12) % 4
    problems = Problems.make(images[:12], (targets + 1) % 4, targets)
    starts = starting.choose(problems)
    assert torch.equal(own_labels(model, starts), targets)
    assert starting.queries == model.seen <= 4 * CANDIDATES
    backwards = starting.choose(problems[torch.arange(11, -1, -1)])
    assert torch.equal(backwards.flip(0), starts)
    assert starting.queries == model.seen  # known by now
    untargeted = Problems.make(images[:12], own_labels(model, images[:12]))
    others = own_labels(model, starting.choose(untargeted))
    assert (others != untargeted.labels).all()


def test_no_starting_image_of_the_class() -> None:
    model, images, labels = problem(10)
    pool = Dataset("pool", images, torch.zeros_like(labels), (), tuple(map(str, range(10))))
    problems = Problems.make(images[:1], [0], [3])
    with pytest.raises(DataError, match="pool has no image of class 3 .*give more images"):
        StartingImages(as_source(pool), model.victim(), seed=0, batch_size=8).choose(problems)


def test_an_evaluation_takes_starts_from_its_data() -> None:
    model, images, labels = problem(30)
    attacks = [Pointwise(3, 60), brusle.attacks.BruSLe(3, 20, palette="image")]
    run = brusle.evaluate(model.victim(), (images, labels), attacks)
    assert "error" not in [status for result in run.results for status in result.status]
    assert run.start_queries > 0
    assert run.as_dict()["start_queries"] == run.start_queries
    spent = sum(int(result.ledger.total.sum()) for result in run.results)
    assert spent + run.start_queries + run.preflight_queries == model.seen


def test_a_wrapped_attack_gets_the_starts_of_the_attack_inside() -> None:
    model, images, labels = problem(30)
    inside = brusle.attacks.BruSLe(3, 10, palette="image")
    wrapped = [brusle.attacks.Restarts(inside, 2), brusle.attacks.Ensemble([inside])]
    run = brusle.evaluate(model.victim(), (images, labels), wrapped)  # untargeted as well
    assert run.start_queries > 0
    assert all(set(result.status) <= {"success", "failed"} for result in run.results)
