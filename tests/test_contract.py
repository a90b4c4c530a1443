"""What every attack promises, whatever it does inside: one table of attacks, one set of tests."""

import itertools

import numpy as np
import pytest
import torch
from models import Counting, additive_model, grey_images, integer_model, own_labels, random_images

from brusle.attacks import BruSLe
from brusle.errors import InputError, VictimError
from brusle.results import AttackResult
from brusle.victims import wrap

ATTACKS = {
    "brusle": lambda pixels, queries: BruSLe(pixels, queries),
    "brusle-reference": lambda pixels, queries: BruSLe(pixels, queries, variant="reference"),
    "brusle-two-colours": lambda pixels, queries: BruSLe(
        pixels, queries, colours=2, palette="uniform", schedule="cosine", dissimilarity=False
    ),
    "brusle-inverted": lambda pixels, queries: BruSLe(
        pixels, queries, palette="inverted", schedule="step-decay", loss="logit-margin"
    ),
    "brusle-gaussian": lambda pixels, queries: BruSLe(
        pixels, queries, palette="gaussian", schedule="constant", initial=3, alpha_prior=1.5
    ),
}
SHAPE, CLASSES, PIXELS, QUERIES = (3, 12, 12), 5, 3, 40
attacks = pytest.mark.parametrize("name", ATTACKS)
goals = pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])


def setup(n: int, targeted: bool, shape=SHAPE, classes=CLASSES):
    model = integer_model(shape, classes)
    images = random_images(n, shape)
    labels = own_labels(model, images)
    targets = (labels + 1 + torch.arange(n) % (classes - 1)) % classes if targeted else None
    return model, images, labels, targets


def rows(result: AttackResult) -> dict[int, tuple]:
    """Everything a row says, by problem id."""
    return {
        int(result.problems.ids[i]): (
            result.status[i],
            int(result.queries[i]),
            int(result.pixels[i]),
            int(result.labels[i]),
            float(result.losses[i]),
            result.images[i].numpy().tobytes(),
            tuple(result.ledger.row(i).items()),
        )
        for i in range(len(result))
    }


@attacks
@goals
def test_ledger_equals_a_counter_inside_the_model(name, targeted) -> None:
    model, images, labels, targets = setup(40, targeted)
    labels[:3] = (labels[:3] + 1) % CLASSES  # some are wrong from the start
    if targets is not None:
        targets[:3] = (labels[:3] + 1) % CLASSES
    result = ATTACKS[name](PIXELS, QUERIES)(model.victim(), images, labels, targets, batch_size=16)
    assert int(result.ledger.total.sum()) == model.seen
    assert int(result.ledger.lost.sum()) == 0
    assert result.ledger.clean.tolist() == [1] * 40
    assert torch.equal(result.queries, result.ledger.initial + result.ledger.search)
    assert result.status[:3] == ["skipped"] * 3
    assert result.queries[:3].tolist() == [0, 0, 0]
    assert torch.equal(result.ledger.verify.bool(), result.success)
    assert {"success", "failed"} <= set(result.status)  # or the test would show little


@attacks
@goals
def test_rows_do_not_depend_on_batch_size_or_order(name, targeted) -> None:
    model, images, labels, targets = setup(30, targeted)
    attack = ATTACKS[name](PIXELS, QUERIES)
    expected = rows(attack(model.victim(), images, labels, targets, seed=3, batch_size=64))
    order = torch.randperm(30, generator=torch.Generator().manual_seed(9))
    for batch_size, turn in itertools.product((1, 7, 64), (slice(None), order)):
        moved = None if targets is None else targets[turn]
        got = attack(
            model.victim(), images[turn], labels[turn], moved, seed=3, batch_size=batch_size
        )
        assert rows(got) == expected
    other = rows(attack(model.victim(), images, labels, targets, seed=4, batch_size=64))
    assert other != expected


@attacks
@goals
def test_success_survives_png_and_stays_within_budget(name, targeted) -> None:
    from brusle.verify import png_round_trip

    model, images, labels, targets = setup(60, targeted)
    result = ATTACKS[name](PIXELS, QUERIES)(model.victim(), images, labels, targets)
    changed = (result.images != images).any(1).flatten(1).sum(1)
    assert torch.equal(result.pixels, changed)
    assert int(changed.max()) <= PIXELS
    assert result.images.min() >= 0 and result.images.max() <= 1
    assert "unverified" not in result.status
    for i in result.success.nonzero()[:, 0].tolist():
        saved = torch.from_numpy(png_round_trip(result.images[i : i + 1].numpy()))
        label = int(model.function(saved).argmax())
        assert label == int(result.labels[i])
        assert label == int(targets[i]) if targeted else label != int(labels[i])
    assert 0 < int(result.success.sum()) < 60


@attacks
@pytest.mark.parametrize("queries", [1, 2, 9, 10, 11, 25])
def test_never_one_query_over(name, queries) -> None:
    model, images, labels, _ = setup(20, False)
    victim = model.victim()
    result = ATTACKS[name](1, queries)(victim, images, labels, batch_size=6)
    spent = result.queries
    assert int(spent.max()) <= queries
    failed = torch.tensor([s == "failed" for s in result.status])
    assert failed.any()
    assert (spent[failed] == queries).all()
    assert int(result.ledger.total.sum()) == model.seen


@attacks
@pytest.mark.parametrize(
    ("shape", "classes", "n"),
    [
        ((3, 8, 8), 5, 1),  # a single image
        ((1, 6, 6), 3, 9),  # one channel
        ((3, 5, 11), 4, 9),  # not square
        ((4, 7, 3), 4, 9),  # four channels
        ((5, 4, 4), 3, 9),  # more channels than any picture format
        ((3, 6, 6), 2, 9),  # two classes
        ((3, 6, 6), 1000, 9),  # a thousand classes
        ((2, 1, 9), 3, 9),  # one row of pixels
    ],
)
def test_odd_shapes(name, shape, classes, n) -> None:
    for targeted in (False, True):
        model, images, labels, targets = setup(n, targeted, shape, classes)
        result = ATTACKS[name](3, 30)(model.victim(), images, labels, targets, batch_size=4)
        assert int(result.ledger.total.sum()) == model.seen
        assert int(result.pixels.max()) <= 3
        assert set(result.status) <= {"success", "failed"}


@attacks
def test_budget_of_the_whole_image_and_of_one_pixel(name) -> None:
    model, images, labels, _ = setup(6, False, (3, 3, 3))
    for pixels in (1, 9):
        result = ATTACKS[name](pixels, 20)(model.victim(), images, labels)
        assert int(result.pixels.max()) <= pixels


@attacks
def test_all_misclassified(name) -> None:
    model, images, labels, _ = setup(5, False)
    result = ATTACKS[name](2, 20)(model.victim(), images, (labels + 1) % CLASSES)
    assert result.status == ["skipped"] * 5
    assert np.isnan(result.asr())
    assert result.robust_accuracy == 0
    assert model.seen == 5


@attacks
@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_one_failing_image_gets_an_error_row_and_the_rest_finish(name, batch_size) -> None:
    model, images, labels, _ = setup(20, False)
    attack = ATTACKS[name](2, 30)
    clean = rows(attack(model.victim(), images, labels, batch_size=batch_size))
    victims_first_pixel = images[7, :, :, 0].clone()

    calls: dict[str, int] = {"bad": 0}

    def breaks(batch: torch.Tensor) -> torch.Tensor:
        same = (batch[:, :, :, 0] == victims_first_pixel).float().mean((1, 2)) > 0.6
        if same.any():
            calls["bad"] += 1
            if calls["bad"] > 3:
                raise RuntimeError("out of luck\nwith a long story")
        return model.function(batch)

    counting = Counting(breaks)
    result = attack(counting.victim(), images, labels, batch_size=batch_size)
    assert [i for i, s in enumerate(result.status) if s == "error"] == [7]
    assert result.errors[7] == "the victim raised RuntimeError: out of luck"
    got = rows(result)
    mine = int(result.problems.ids[7])
    for key, row in clean.items():
        if key != mine:
            # all but the lost queries, which the neighbours of a failing image share
            assert got[key][:6] == row[:6]
    assert int(result.ledger.total.sum() + result.ledger.lost.sum()) == counting.seen
    assert result.robust_accuracy == result.status.count("failed") / 19


@attacks
def test_nan_scores_are_an_error_of_that_image_only(name) -> None:
    model, images, labels, _ = setup(10, False)

    def sometimes_nan(batch: torch.Tensor) -> torch.Tensor:
        scores = model.function(batch)
        hit = (batch == images[4]).float().mean((1, 2, 3)) > 0.6
        scores[hit & (batch != images[4]).flatten(1).any(1)] = torch.nan
        return scores

    result = ATTACKS[name](2, 30)(wrap(sometimes_nan, output="logits"), images, labels)
    assert [i for i, s in enumerate(result.status) if s == "error"] == [4]
    assert "NaN or infinite" in result.errors[4]


@pytest.mark.parametrize("name", ["brusle", "brusle-reference"])  # whose colours are black, white
@pytest.mark.parametrize(
    ("budget", "expected"), [(1, "failed"), (3, "failed"), (4, "success"), (6, "success")]
)
@goals
def test_known_optimum_of_an_additive_model(name, targeted, budget, expected) -> None:
    # 8 + 7 + 6 = 21 is not enough, 8 + 7 + 6 + 4 = 25 is: four pixels are needed
    model = additive_model([8, 7, 6, 5, 4, 3, 2, 1, 1, 1], threshold=25, shape=(6, 6))
    images = grey_images(12, (6, 6))
    attack = ATTACKS[name](budget, 1500)
    result = attack(model.victim(), images, 0, 1 if targeted else None, ids=range(12))
    assert result.status == [expected] * 12
    if expected == "success":
        assert int(result.pixels.min()) >= 4


@pytest.mark.parametrize("bad", [{"pixels": 0}, {"pixels": 2.5}, {"queries": 0}, {"pixels": True}])
def test_budgets_must_be_positive_integers(bad) -> None:
    with pytest.raises(InputError, match="must be an integer of at least 1"):
        BruSLe(**{"pixels": 3, "queries": 5, **bad})


@attacks
def test_bad_requests_cost_no_query(name) -> None:
    model, images, labels, _ = setup(4, False)
    with pytest.raises(InputError, match="12 x 12 has 144"):
        ATTACKS[name](145, 5)(model.victim(), images, labels)
    with pytest.raises(InputError, match="target of image 0 equals"):
        ATTACKS[name](3, 5)(model.victim(), images, labels, labels)
    with pytest.raises(InputError, match="batch_size is 0"):
        ATTACKS[name](3, 5)(model.victim(), images, labels, batch_size=0)
    assert model.seen == 0
    with pytest.raises(InputError, match="out of range: the victim has 5 classes"):
        ATTACKS[name](3, 5)(model.victim(), images, [1, 2, 3, 5])
    assert model.seen == 4


@attacks
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: torch.zeros(len(x)), "shape \\(4,\\): scores must be \\(4, classes\\)"),
        (lambda x: torch.zeros(len(x), 1), "at least 2 classes"),
        (lambda x: torch.zeros(1, 5), "answered 4 images with shape \\(1, 5\\)"),
        (lambda x: torch.full((len(x), 5), torch.nan), "no clean image could be classified.*NaN"),
        (lambda x: x.no_such_method(), "no clean image could be classified.*AttributeError"),
        (lambda x: "scores", "no array of scores"),
    ],
)
def test_a_victim_that_answers_nonsense_stops_the_run(name, function, message) -> None:
    with pytest.raises(VictimError, match=message):
        ATTACKS[name](3, 5)(
            wrap(function, output="logits"), random_images(4, SHAPE), [0, 1, 2, 3], batch_size=4
        )
