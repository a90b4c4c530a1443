import numpy as np
import pytest
import torch
from models import integer_model, own_labels, random_images

from brusle.ledger import BudgetError
from brusle.oracle import Oracle
from brusle.problems import Problems
from brusle.verify import png_round_trip, verify
from brusle.victims import wrap

SHAPE = (3, 6, 6)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_round_trip_keeps_8_bit_images_and_rounds_others(channels) -> None:
    exact = random_images(3, (channels, 5, 7)).numpy()
    assert np.array_equal(png_round_trip(exact), exact)
    fine = np.full((2, channels, 5, 7), 0.5, np.float32)
    assert np.array_equal(png_round_trip(fine), np.full_like(fine, np.float32(128) / 255))


def checked(change, pixels=2, targets=None) -> tuple[dict[int, str], Oracle]:
    model = integer_model(SHAPE, 4)
    images = random_images(1, SHAPE)
    labels = own_labels(model, images)
    problems = Problems.make(images, labels, targets)
    oracle = Oracle(model.victim(), 1, limit=0, batch_size=8)
    return verify(oracle, problems, change(images.clone()), [0], pixels).refused, oracle


def test_refuses_too_many_pixels_without_a_query() -> None:
    def three(images):
        images[0, 1, 0, :3] = 1 - images[0, 1, 0, :3]
        return images

    reasons, oracle = checked(three)
    assert reasons == {0: "3 pixels differ from the original, 2 are allowed"}
    assert int(oracle.ledger.verify.sum()) == 0


def test_refuses_values_out_of_range() -> None:
    def bright(images):
        images[0, 0, 0, 0] = 1.5
        return images

    assert "leave [0, 1]" in checked(bright)[0][0]


def test_refuses_an_image_that_is_no_success() -> None:
    reasons, oracle = checked(lambda images: images)
    assert "after an 8-bit PNG round trip the victim says class" in reasons[0]
    assert int(oracle.ledger.verify.sum()) == 1


def test_a_success_lost_in_rounding_is_unverified_and_not_counted() -> None:
    """A victim that looks below 8 bits: the attack sees a success that no PNG can hold."""
    from brusle.attacks import BruSLe

    images = torch.full((4, 1, 6, 6), 128 / 255)
    images[:2] += 1e-3  # these two are not 8-bit images

    def fussy(x: torch.Tensor) -> torch.Tensor:
        background = x.flatten(1).median(1).values
        changed = (x.flatten(1) - background[:, None]).abs().amax(1) > 0.1
        below_8_bits = (background * 255 - 128).abs() > 0.1
        return torch.stack([torch.zeros(len(x)), (changed & below_8_bits) * 2.0 - 1], 1)

    result = BruSLe(3, 20)(wrap(fussy, output="logits"), images, 0, ids=range(4))
    assert result.status == ["unverified", "unverified", "failed", "failed"]
    assert result.asr() == 0
    assert result.robust_accuracy == 0.5
    assert "PNG round trip" in result.errors[0]


def test_the_oracle_refuses_to_go_over_the_limit() -> None:
    model = integer_model(SHAPE, 4)
    oracle = Oracle(model.victim(), 2, limit=2, batch_size=8)
    images, rows = random_images(2, SHAPE), torch.arange(2)
    oracle.ask(rows, images, "initial")
    oracle.ask(rows[:1], images[:1], "search")
    with pytest.raises(BudgetError, match="problem 0 has spent its 2 queries"):
        oracle.ask(rows, images, "search")
    oracle.ask(rows, images, "verify")  # not the attack's
    assert oracle.ledger.attack.tolist() == [2, 1]
    assert model.seen == int(oracle.ledger.total.sum()) == 5
