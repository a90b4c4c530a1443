"""Images in the ranges and orders of other libraries, there and back."""

import numpy as np
import pytest
import torch
from models import Counting, integer_model, own_labels, random_images

import brusle
from brusle.attacks import BruSLe, Ensemble, Minimal, Restarts, SparseRS
from brusle.interop.calling import Case, in_pixels, reached_at_once, with_pixels
from brusle.interop.layout import Layout, on_levels

SHAPE, CLASSES = (3, 6, 6), 4
LEVELS = (torch.arange(256).float() / 255).reshape(1, 1, 16, 16)
RANGES = [(0, 1), (0, 255), (-1, 1), (-2.117, 2.64), (0.1, 0.7), (-3, 1e3)]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_every_level_of_every_range_is_that_level_again(low, high, last) -> None:
    layout = Layout(low, high, last)
    theirs = layout.outward(LEVELS)
    assert theirs.shape == ((1, 16, 16, 1) if last else (1, 1, 16, 16))
    assert torch.equal(layout.inward(theirs), LEVELS)
    if (low, high) == (0, 255):
        assert torch.equal(theirs, theirs.round())


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_what_was_not_changed_comes_back_to_the_bit(low, high, last) -> None:
    layout = Layout(low, high, last)
    generator = torch.Generator().manual_seed(0)
    theirs = layout.outward(torch.rand(2, *SHAPE, generator=generator))
    before = layout.inward(theirs)
    after = before.clone()
    after[1, 2, 3, 4] = 1.0
    back = layout.put_back(theirs, before, after)
    at = (1, 3, 4, 2) if last else (1, 2, 3, 4)
    assert back[at] == pytest.approx(high)
    assert (back != theirs).nonzero().tolist() == [list(at)]
    assert back.dtype == theirs.dtype and back.shape == theirs.shape


def test_only_images_that_were_8_bit_are_made_so() -> None:
    images = torch.cat([LEVELS + 4e-7, LEVELS * 0.999, LEVELS])
    assert torch.equal(on_levels(images)[0], LEVELS[0])
    assert torch.equal(on_levels(images)[1], images[1])
    outside = torch.tensor([[[[-4e-7, 0.3125, 1.0000004, 1.5]]]])
    assert on_levels(outside).flatten().tolist() == [0, 0.3125, 1, 1.5]


def test_in_its_own_range_nothing_is_touched() -> None:
    images = torch.rand(2, *SHAPE)
    assert Layout().inward(images) is images and Layout().outward(images) is images


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        (torch.full((1, *SHAPE), 1.01), "reach from 1.01 to 1.01, but are declared to lie in"),
        (torch.full((1, *SHAPE), torch.nan), "reach from nan to nan"),
        (torch.zeros(SHAPE), r"have shape \(3, 6, 6\): give \(number, channels, height, width\)"),
        (torch.zeros(0, *SHAPE), "at least one"),
        (torch.zeros(1, *SHAPE).long(), "have dtype torch.int64: give floats"),
    ],
)
def test_what_cannot_be_images_is_refused(images, reason) -> None:
    with pytest.raises(brusle.InputError, match=reason):
        Layout().inward(images)


def test_a_range_that_was_rounded_holds_its_own_ends() -> None:
    low, high = (float(np.float32(end)) for end in (0.1, 0.7))  # below 0.7, above 0.1
    theirs = torch.tensor([0.1, 0.7], dtype=torch.float64).reshape(1, 1, 1, 2)
    assert Layout(low, high).inward(theirs).flatten().tolist() == [0, 1]


@pytest.mark.parametrize("value", [1, 7.0, np.int64(3), np.float32(4)])
def test_budgets_are_whole_numbers_of_pixels(value) -> None:
    assert in_pixels("eps", value) == int(value)


@pytest.mark.parametrize("value", [0, -1, 0.5, 8 / 255, True, None, "5", np.inf, np.nan])
def test_other_budgets_are_refused(value) -> None:
    with pytest.raises(brusle.InputError, match="here it counts pixels"):
        in_pixels("eps", value)


def test_a_budget_is_that_of_all_searches() -> None:
    attack = BruSLe(4, 20)
    parts = Ensemble([attack, SparseRS(4, 20)], "mine")
    assert with_pixels(attack, 2) == BruSLe(2, 20)
    assert with_pixels(Restarts(attack, 3), 2) == Restarts(BruSLe(2, 20), 3)
    assert with_pixels(Minimal(attack, 50), 2) == Minimal(BruSLe(2, 20), 50)
    assert with_pixels(parts, 2) == Ensemble([BruSLe(2, 20), SparseRS(2, 20)], "mine")


def test_a_missing_label_is_what_the_model_says_and_is_asked_once() -> None:
    model = integer_model(SHAPE, CLASSES)
    images = random_images(12, SHAPE)
    labels = own_labels(model, images)
    targets = (labels + 1) % CLASSES
    targets[5] = labels[5]
    case = Case(BruSLe(3, 20), model.victim(), images, batch_size=5)
    for call in (case.leaving_predictions, lambda: case.reaching(targets)):
        before = model.seen
        result = call()
        assert model.seen - before == int(result.ledger.total.sum())
        assert result.ledger.clean.tolist() == [1] * 12
    assert reached_at_once(result, targeted=True).nonzero().flatten().tolist() == [5]
    assert [status == "skipped" for status in result.status] == [at == 5 for at in range(12)]
    assert not reached_at_once(case.leaving(labels), targeted=False).any()


def test_batches_are_as_large_as_they_are_said_to_be() -> None:
    model = integer_model(SHAPE, CLASSES)
    images = random_images(12, SHAPE)
    Case(BruSLe(3, 4), model.victim(), images, batch_size=5).reaching(0)
    assert max(model.batches) == 5
    for call in ("leaving_predictions", "reaching"):
        case = Case(BruSLe(3, 4), model.victim(), images, batch_size=0)
        with pytest.raises(brusle.InputError, match="batch_size is 0"):
            getattr(case, call)(*[0][: call == "reaching"])


def test_a_model_that_answers_nothing_is_told() -> None:
    def broken(images):
        raise ValueError("no weights")

    case = Case(BruSLe(3, 4), Counting(broken).victim(), random_images(3, SHAPE))
    with pytest.raises(brusle.VictimUnavailable, match="no clean image could be.*no weights"):
        case.reaching(1)
