"""ART's attacks under brusle's ledger, against ART itself."""

import pickle
import re
from dataclasses import replace
from inspect import isclass
from pathlib import Path

import numpy as np
import pytest
import torch
from models import Counting, integer_model, own_labels, random_images

import brusle
from brusle import rng
from brusle.attacks import art, make
from brusle.attacks.external.from_art import ART
from brusle.errors import InputError
from brusle.problems import Problems

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore"),  # ART's own
]
evasion = pytest.importorskip("art.attacks.evasion")
classification = pytest.importorskip("art.estimators.classification")

SHAPE, CLASSES, N = (3, 16, 16), 4, 6
MODEL = integer_model(SHAPE, CLASSES)
IMAGES = random_images(N, SHAPE)
LABELS = own_labels(MODEL, IMAGES)
NEEDS_OLD_NUMPY = "GeoDA"  # ART 1.20 calls np.mat, which NumPy 2 has not


def seed_of(at: int) -> int:
    """What the global generators begin with, worked out from the problem."""
    ids = Problems.make(IMAGES[at : at + 1], LABELS[at : at + 1]).ids
    return int(rng.bits(rng.streams(0, ids), 0, rng.purpose("external: seed"), 1))


class Enough(BaseException):
    """The native attack has asked as often as ours."""


def native_until_success(at: int, pixels: int, limit: int) -> tuple[int, bool]:
    """How many images ART's PixelAttack asks for until one is adversarial, and whether one is."""
    asked = 0

    def predict(images):
        nonlocal asked
        scores = MODEL.function(torch.as_tensor(images)).float().numpy()
        for label in scores.argmax(1):
            asked += 1
            if label != int(LABELS[at]):
                raise Enough
            if asked == limit:
                raise Enough
        return scores

    black_box = classification.BlackBoxClassifierNeuralNetwork(
        predict, SHAPE, CLASSES, channels_first=True, clip_values=(0.0, 1.0)
    )
    attack = evasion.PixelAttack(black_box, th=pixels, es=1, verbose=False)
    np.random.seed(seed_of(at))  # noqa: NPY002 - the one that ART draws from
    one_hot = np.eye(CLASSES, dtype=np.float32)[LABELS[at : at + 1]]
    with pytest.raises(Enough):
        attack.generate(IMAGES[at : at + 1].numpy(), one_hot)
    return asked


def test_queries_are_those_of_the_native_call() -> None:
    model = Counting(MODEL.function)
    result = make("art:PixelAttack", 3, 120)(model.victim(), IMAGES, LABELS)
    assert int(result.ledger.total.sum()) == model.seen
    assert result.queries.tolist() == [native_until_success(at, 3, 120) for at in range(N)]
    assert int(result.success.sum()) > 0
    assert int(result.pixels.max()) <= 3
    assert "unverified" not in result.status


def test_a_published_attack_is_stopped_exactly_at_its_limit() -> None:
    model = Counting(MODEL.function)
    result = make("art:HopSkipJump", 2, 37)(model.victim(), IMAGES, LABELS, batch_size=4)
    assert result.queries.tolist() == [37] * N
    assert model.seen == 38 * N


@pytest.mark.parametrize("name", ART.known)
def test_every_attack_that_is_listed_runs(name) -> None:
    attack = art(name, pixels=20, queries=25)
    model = Counting(MODEL.function)
    result = attack(model.victim(), IMAGES, LABELS)
    allowed = {"error"} if name == NEEDS_OLD_NUMPY else {"success", "failed", "unverified"}
    assert set(result.status) <= allowed, result.errors
    assert int(result.ledger.total.sum()) == model.seen
    alone = pickle.loads(pickle.dumps(attack))(model.victim(), IMAGES[2:3], LABELS[2:3])
    assert torch.equal(alone.images[0], result.images[2])
    assert int(alone.queries[0]) == int(result.queries[2])


@pytest.mark.parametrize(
    "name", ["BoundaryAttack", "HopSkipJump", "PixelAttack", "SimBA", "ZooAttack"]
)
def test_targeted(name) -> None:
    targets = (LABELS + 1) % CLASSES
    model = Counting(MODEL.function)
    result = art(name, pixels=9, queries=60)(model.victim(), IMAGES, LABELS, targets)
    assert set(result.status) <= {"success", "failed"}, result.errors
    assert int(result.ledger.total.sum()) == model.seen
    assert torch.equal(result.labels[result.success], targets[result.success])


@pytest.mark.parametrize("name", sorted(ART.labels - {NEEDS_OLD_NUMPY}))
def test_what_is_said_to_need_labels_does_the_same_with_scores(name) -> None:
    attack = art(name, pixels=20, queries=40)
    labels, scores = (
        replace(attack, needs=needs)(MODEL.victim(), IMAGES, LABELS)
        for needs in ("labels", "scores")
    )
    assert torch.equal(labels.images, scores.images)
    assert torch.equal(labels.queries, scores.queries)


def test_the_fewest_pixels_of_an_attack_that_is_told_its_budget() -> None:
    attack = art("PixelAttack", pixels=8, queries=100)
    once = attack(MODEL.victim(), IMAGES, LABELS)
    fewest = brusle.minimise(attack, MODEL.victim(), IMAGES, LABELS, queries=400)
    assert int(fewest.pixels[once.success].sum()) < int(once.pixels[once.success].sum())


def test_what_is_not_listed_needs_more_than_answers() -> None:
    base = evasion.PixelAttack.__mro__[2]
    assert base.__name__ == "EvasionAttack"
    names = {n for n, kind in vars(evasion).items() if isclass(kind) and issubclass(kind, base)}
    others = names - set(ART.known)
    assert set(ART.known) < names and len(others) > 30
    for name in others:
        with pytest.raises(InputError, match="needs gradients, or more than a model and an image"):
            art(name, pixels=3)


def test_the_documentation_lists_them() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "external.md").read_text()
    assert [name for name in ART.known if not re.search(rf"`(\w+:)?{name}[`?]", page)] == []
    (spec,) = re.findall(r"`(art:\w+)`", (docs / "attacks.md").read_text())
    assert make(spec, 3, 50).name == spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("art:Square", "ART has no attack 'Square': did you mean 'SquareAttack'?"),
        ("art:os", "ART has no attack 'os': docs/external.md lists them"),
        ("art:PixelAttack?th=0", "refuses its options: ValueError"),
        ("art:PixelAttack?colour=3", "refuses its options: TypeError: .*colour"),
    ],
)
def test_names_that_are_none(spec, message) -> None:
    with pytest.raises(InputError, match=message):
        make(spec, 3, 20)


def test_a_goal_that_it_does_not_know() -> None:
    with pytest.raises(InputError, match="art:SquareAttack knows untargeted attacks only"):
        art("SquareAttack", pixels=3)(MODEL.victim(), IMAGES, LABELS, (LABELS + 1) % CLASSES)
