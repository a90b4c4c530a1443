"""The fewest pixels, where they are known."""

import pytest
import torch
from models import (
    additive_model,
    grey_images,
    integer_model,
    linear_model,
    own_labels,
    random_images,
)

import brusle
from brusle.attacks import (
    L0HSJA,
    PGD0,
    BayesOpt,
    BruSLe,
    Minimal,
    OnePixel,
    PixelBandit,
    Pointwise,
    SigmaZero,
    SparseEvo,
    SparseRS,
)
from brusle.errors import InputError

WEIGHTS, THRESHOLD = [8, 7, 6, 5, 4, 3, 2, 1, 1, 1], 25  # 8 + 7 + 6 is too little: 4 pixels
# any attack, with queries for each try and in total; SparseEvo by loss alone does not get sparse
BLACK_BOX = {
    "brusle": (BruSLe(20, 200), 800),
    "pixel-bandit": (PixelBandit(20, 200), 800),
    "sparse-rs": (SparseRS(20, 200), 800),
    "sparse-rs-synthetic": (SparseRS(20, 200, synthetic=True), 800),
    "sparse-rs-feature": (SparseRS(20, 200, space="feature"), 800),
    "sparse-evo": (SparseEvo(20), 1000),
    "sparse-evo-synthetic": (SparseEvo(20, 200, variant="synthetic"), 800),
    "pointwise": (Pointwise(20), 800),
    "l0-hsja": (L0HSJA(20, probes=20), 3000),
    "one-pixel": (OnePixel(20, 500, population=25), 2500),
    "bayes-opt": (BayesOpt(20, 100, initial=10, candidates=100, refit=20), 300),
}


@pytest.mark.parametrize("name", BLACK_BOX)
def test_black_box_attacks_come_within_one_pixel_of_the_optimum(name) -> None:
    attack, queries = BLACK_BOX[name]
    if name == "bayes-opt":
        pytest.importorskip("botorch", reason="BayesOpt needs the extra brusle[bayes]")
    model = additive_model(WEIGHTS, THRESHOLD, shape=(6, 6))
    images = grey_images(4, (6, 6))
    result = brusle.minimise(
        attack,
        model.victim(),
        images,
        0,
        [1, 1, 1, 1],
        queries=queries,
        ids=range(4),
        starts=torch.zeros_like(images),
    )
    assert result.status == ["success"] * 4
    assert set(result.pixels.tolist()) <= {4, 5}
    assert result.losses.tolist() == result.pixels.tolist()
    assert (result.queries == queries).all()  # all are spent: who knows whether fewer would do
    assert int(result.ledger.total.sum()) == model.seen


@pytest.mark.parametrize("attack", [PGD0(20, 60), SigmaZero(20, 300)], ids=["pgd0", "sigma-zero"])
def test_white_box_attacks_reach_the_optimum(attack) -> None:
    model = linear_model(WEIGHTS, THRESHOLD, shape=(6, 6))
    result = brusle.minimise(
        attack, model.victim(), grey_images(4, (6, 6)), 0, queries=300, ids=range(4)
    )
    assert result.pixels.tolist() == [4] * 4


def test_nothing_can_be_taken_back() -> None:
    model = integer_model((3, 10, 10), 5)
    images = random_images(12, (3, 10, 10))
    labels = own_labels(model, images)
    result = brusle.minimise(BruSLe(30, 100), model.victim(), images, labels, queries=400)
    assert result.success.all()
    for image, original, label in zip(result.images, images, labels, strict=True):
        for row, column in (image != original).any(0).nonzero().tolist():
            fewer = image.clone()
            fewer[:, row, column] = original[:, row, column]
            assert int(model.function(fewer[None]).argmax()) == int(label)


def test_fewer_pixels_than_the_attack_alone_and_no_query_too_many() -> None:
    model = integer_model((3, 10, 10), 5)
    images = random_images(20, (3, 10, 10))
    labels = own_labels(model, images)
    attack = BruSLe(10, 60)
    alone = attack(model.victim(), images, labels)
    few = Minimal(attack, 200)(model.victim(), images, labels)
    assert (few.pixels[alone.success] <= alone.pixels[alone.success]).all()
    assert float(few.pixels.float().mean()) < 0.7 * float(alone.pixels.float().mean())
    assert int(few.queries.max()) <= 200
    one = few.pixels == 1
    assert (few.queries[~one] == 200).all()


def test_a_single_pixel_ends_the_search() -> None:
    model = additive_model([5], threshold=5, shape=(4, 4))
    result = brusle.minimise(
        BruSLe(8, 200), model.victim(), grey_images(3, (4, 4)), 0, ids=range(3)
    )
    assert result.pixels.tolist() == [1, 1, 1]
    assert int(result.queries.max()) < 2000


def test_infinite_loss_where_nothing_is_found() -> None:
    model = additive_model([1], threshold=5, shape=(4, 4))
    result = brusle.minimise(
        BruSLe(3, 20), model.victim(), grey_images(2, (4, 4)), 0, queries=50, ids=range(2)
    )
    assert result.status == ["failed"] * 2
    assert result.queries.tolist() == [50, 50]
    assert torch.isinf(result.losses).all()


def test_needs_a_total() -> None:
    with pytest.raises(InputError, match="total is 0"):
        Minimal(BruSLe(3), 0)
