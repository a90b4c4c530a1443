"""The fewest pixels, where they are known."""

import pytest
import torch
from models import additive_model, grey_images, integer_model, own_labels, random_images

import brusle
from brusle.attacks import BruSLe, Minimal
from brusle.errors import InputError


def test_the_optimum_of_an_additive_model() -> None:
    # 8 + 7 + 6 = 21 is not enough, 8 + 7 + 6 + 4 = 25 is: four pixels are needed
    model = additive_model([8, 7, 6, 5, 4, 3, 2, 1, 1, 1], threshold=25, shape=(6, 6))
    images = grey_images(8, (6, 6))
    result = brusle.minimise(BruSLe(20, 300), model.victim(), images, 0, queries=1500, ids=range(8))
    assert result.status == ["success"] * 8
    assert set(result.pixels.tolist()) <= {4, 5}
    assert result.losses.tolist() == result.pixels.tolist()
    assert (result.queries == 1500).all()  # all are spent: who knows whether fewer would do
    assert int(result.ledger.total.sum()) == model.seen


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
