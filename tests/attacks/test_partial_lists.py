"""Attacks on victims that only list some labels, in any order of columns and any number of them."""

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest
import torch
from models import integer_model, levels, random_images
from torch import Tensor

from brusle.attacks import PixelBandit, SparseEvo
from brusle.attacks.names import ATTACKS
from brusle.attacks.pixel_bandit.log_odds import CLASSES, LogOdds
from brusle.goals import Goal
from brusle.problems import Problems
from brusle.results import AttackResult
from brusle.scores import ABSENT, Meaning, Scores, widened
from brusle.victims import FunctionVictim, wrap

SHAPE, LABELS = (3, 8, 8), 40
KNOWN = 6  # labels that the data know; the others turn up while an attack runs
FOLLOWERS: dict[str, Callable[[int, int], Any]] = {
    name: kind for name, kind in ATTACKS.items() if kind(1, 10).behaviour.needs == "scores"
} | {
    "sparse-evo-loss": lambda pixels, queries: SparseEvo(pixels, queries, variant="loss"),
    "sparse-evo-synthetic": lambda pixels, queries: SparseEvo(pixels, queries, variant="synthetic"),
}
followers = pytest.mark.parametrize("name", FOLLOWERS)
goals = pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])
outputs = pytest.mark.parametrize("output", ["probabilities", "confidences"])
MODEL = integer_model(SHAPE, LABELS).function


def chances(images: Tensor) -> Tensor:
    """Probabilities of all labels, no two of them the same."""
    return (MODEL(images) / 2 + torch.arange(LABELS) / 1e4).softmax(1)


def listing(output: str) -> Callable[[Tensor], Tensor]:
    """The three best labels, or those with a confidence of a half and more."""

    def answer(images: Tensor) -> Tensor:
        shares = chances(images)
        if output == "probabilities":
            least = shares.topk(3, 1).values[:, -1:]
        else:
            shares, least = shares / (shares + 0.05), torch.tensor(0.5)
        return shares.masked_fill(shares < least, ABSENT)

    return answer


def problems_of(count: int, targeted: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Images, labels, targets and starting images of the labels that the data know."""
    images = random_images(400, SHAPE)
    labels = chances(images).argmax(1)
    images, labels = images[labels < KNOWN], labels[labels < KNOWN]
    if not targeted:
        return images[:count], labels[:count], None, None
    known = sorted(set(labels.tolist()))
    after = {label: known[at - 1] for at, label in enumerate(known)}
    targets = torch.tensor([after[label] for label in labels[:count].tolist()])
    starts = torch.stack([images[labels == target][0] for target in targets.tolist()])
    return images[:count], labels[:count], targets, starts


def rows(result: AttackResult) -> list[tuple]:
    """What must not depend on the columns."""
    return [
        (status, int(queries), repr(float(loss)), image.numpy().tobytes())
        for status, queries, loss, image in zip(
            result.status, result.queries, result.losses, result.images, strict=True
        )
    ]


def of(victim: FunctionVictim, name: str, targeted: bool, columns: Tensor | None = None, **options):
    images, labels, targets, starts = problems_of(10, targeted)
    if columns is not None:
        labels = columns[labels]
        targets = None if targets is None else columns[targets]
    attack = FOLLOWERS[name](3, 30)
    ids = range(len(images))
    return attack(victim, images, labels, targets, starts=starts, ids=ids, **options)


@followers
@goals
@outputs
def test_rows_do_not_depend_on_the_order_of_columns(name, targeted, output) -> None:
    answer = listing(output)
    plain = wrap(answer, output=output, gives="partial")
    expected = of(plain, name, targeted)
    columns = torch.randperm(LABELS, generator=torch.Generator().manual_seed(2))
    turned = wrap(
        lambda images: answer(images)[:, columns.argsort()], output=output, gives="partial"
    )
    got = of(turned, name, targeted, columns)
    assert rows(got) == rows(expected)
    assert torch.equal(got.labels, columns[expected.labels])
    assert "success" in expected.status or FOLLOWERS[name](3, 30).behaviour.needs_start


def named_victim(answer: Callable[[Tensor], Tensor]) -> tuple[FunctionVictim, list[int]]:
    """A victim that answers with labels by name, and how many images it has seen in each call."""
    seen: list[int] = []

    def lists(images: Tensor) -> list[Mapping[str, float]]:
        seen.append(len(images))
        return [
            {f"label {at}": score for at, score in enumerate(row) if score != ABSENT}
            for row in answer(images).tolist()
        ]

    victim = wrap(lists, output="confidences", named=True)
    assert isinstance(victim, FunctionVictim) and victim.vocabulary is not None
    victim.vocabulary.begin([f"label {at}" for at in range(KNOWN)])
    return victim, seen


@followers
@goals
def test_rows_do_not_depend_on_when_labels_turn_up_and_every_image_is_booked(
    name, targeted
) -> None:
    answer = listing("confidences")
    expected = of(wrap(answer, output="confidences", gives="partial"), name, targeted)
    for batch_size in (64, 3):
        victim, seen = named_victim(answer)
        first = named_victim(answer)[0]
        columns = first(problems_of(10, targeted)[0]).shape[1]
        got = of(victim, name, targeted, batch_size=batch_size)
        assert rows(got) == rows(expected)
        assert KNOWN <= columns < got.scores.shape[1] <= LABELS, "no label turned up on the way"
        assert int(got.ledger.total.sum()) == sum(seen)
        assert torch.equal(got.queries, got.ledger.initial + got.ledger.search)
        assert torch.equal(got.ledger.verify.bool(), got.success)
        assert int(got.queries.max()) <= 30


@followers
@goals
def test_lists_that_are_empty_or_lack_the_target(name, targeted) -> None:
    """A list that has only what is nearly certain, and mostly nothing."""
    whole = listing("confidences")
    images = problems_of(10, targeted)[0]

    def scarce(asked: Tensor) -> Tensor:
        scores = whole(asked)
        clean = (asked[:, None] == images).flatten(2).all(2).any(1)
        return scores.masked_fill((scores < 0.93) & ~clean[:, None], ABSENT)

    victim, seen = named_victim(scarce)
    empty = []

    def watch(round) -> None:
        empty.append((round.feedback.scores.values == ABSENT).all(1).float().mean())
        assert not round.feedback.loss.isnan().any()

    result = of(victim, name, targeted, on_round=watch)
    begins = FOLLOWERS[name](3, 30).behaviour.needs_start
    assert begins or float(torch.stack(empty).mean()) > 0
    assert int(result.ledger.total.sum()) == sum(seen)
    assert set(result.status) <= {"success", "failed", "error"}
    assert begins or "error" not in result.status


# losses and hearing, by hand

LIST = torch.tensor([[0.9, 0.6, ABSENT, ABSENT], [ABSENT, 0.7, 0.8, ABSENT], [ABSENT] * 4])
ZEROS = torch.zeros(3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("missing", "targeted", "expected"),
    [
        (-1.0, True, [0.3, 0.8 - 0.7, 1.0]),
        (-1.0, False, [0.3, -1.8, -1.0]),
        (0.0, True, [0.3, 0.8 - 0.7, 0.0]),
        (0.0, False, [0.3, -0.8, 0.0]),
        ("floor", True, [0.3, 0.8 - 0.7, 0.0]),
        ("floor", False, [0.3, -0.1, 0.0]),
    ],
)
def test_margins_by_hand(missing, targeted, expected) -> None:
    meaning = Meaning("confidences", "partial", missing=missing)
    goal = Goal(targeted, "margin")
    losses = goal.losses(Scores(LIST, meaning), ZEROS, ZEROS + 1 if targeted else None)
    assert losses.tolist() == pytest.approx(expected)


def test_any_list_with_the_target_is_ahead_of_any_without() -> None:
    lists = torch.tensor(
        [[0.99, 0.01, ABSENT], [0.51, ABSENT, 0.5], [0.01, ABSENT, ABSENT], [ABSENT] * 3]
    )
    meaning = Meaning("confidences", "partial")
    targets = torch.ones(4, dtype=torch.int64)
    losses = Goal(True, "margin").losses(Scores(lists, meaning), targets * 0, targets).tolist()
    assert losses == sorted(losses, key=lambda loss: (loss != losses[0], -loss))
    assert losses[0] < losses[3] < losses[2] < losses[1]


@pytest.mark.parametrize("missing", [-1.0, 0.0, "floor"])
@pytest.mark.parametrize("output", ["logits", "probabilities", "confidences"])
@pytest.mark.parametrize("success", ["top1", "absent", "new"])
@pytest.mark.parametrize("loss", ["ce", "margin", "logit-margin"])
def test_losses_do_not_depend_on_columns(missing, output, success, loss) -> None:
    meaning, listed = Meaning(output, "partial", missing=missing), LIST > ABSENT
    goal = Goal(False, loss, success)
    expected = goal.losses(Scores(LIST, meaning), ZEROS, None, listed)
    assert bool(expected.isfinite().all())
    wide = Scores(widened(LIST, 9), meaning)
    assert torch.equal(goal.losses(wide, ZEROS, None, listed), expected)
    order = torch.tensor([2, 3, 0, 1])
    turned = goal.losses(Scores(LIST[:, order], meaning), ZEROS + 2, None, listed[:, order])
    assert torch.equal(turned, expected)
    if success == "top1":
        goal = Goal(True, loss)
        expected = goal.losses(Scores(LIST, meaning), ZEROS, ZEROS + 1)
        assert torch.equal(goal.losses(wide, ZEROS, ZEROS + 1), expected)


def test_a_list_of_logits_counts_as_its_probabilities() -> None:
    logits = torch.tensor([[2.0, ABSENT, 0.5], [ABSENT, 1.0, 3.0]])
    shares = logits.softmax(1).masked_fill(logits == ABSENT, ABSENT)
    for loss, targeted in product(("ce", "margin", "logit-margin"), (True, False)):
        goal, aims = Goal(targeted, loss), (ZEROS[:2], ZEROS[:2] + 1 if targeted else None)
        got = goal.losses(Scores(logits, Meaning("logits", "partial")), *aims)
        want = goal.losses(Scores(shares, Meaning("probabilities", "partial")), *aims)
        assert got.tolist() == pytest.approx(want.tolist(), rel=1e-6)


def heard(values: list[list[float]], output: str, target: int) -> list[list[float]]:
    targets = torch.full((len(values),), target)
    images = torch.zeros(len(values), 1, 2, 2)
    log_odds = LogOdds.of(Problems.make(images, targets * 0, targets, range(len(values))))
    scores = Scores(torch.tensor(values, dtype=torch.float64), Meaning(output, "partial"))
    z = log_odds.hear(scores, first=torch.ones(len(values), dtype=torch.bool))
    assert z.shape[1] == CLASSES
    slope = log_odds.slope(z)[:, :, 0]
    assert slope[:, :2].tolist() == [[1.0, -1.0]] * len(values) and not slope[:, 2:].any()
    return z[:, :2].tolist()


def test_what_pixel_bandit_hears_by_hand() -> None:
    values = [[0.6, 0.3, ABSENT], [0.6, ABSENT, 0.3], [0.98, ABSENT, ABSENT], [ABSENT] * 3]
    assert heard(values, "confidences", 1) == [[0.3, 0.6], [0, 0.6], [0, 0.98], [0, 0]]
    expected = [[0.3, 0.6], [0.01, 0.6], [0.002, 0.98], [0.1, 0.1]]  # a tenth of what is left
    for got, want in zip(heard(values, "probabilities", 1), expected, strict=True):
        assert got == pytest.approx([math.log(p) for p in want])
    crowded = [[0.3, ABSENT, 0.02]]  # or half the lowest
    assert heard(crowded, "probabilities", 1)[0][0] == pytest.approx(math.log(0.01))


# what counts as a success, against brute force

SMALL = (1, 4, 4)


def linear_lists(strength: int) -> Callable[[Tensor], list[dict[str, float]]]:
    """Five labels whose scores are linear in the pixels; those of at least 0.2 are listed."""
    weights = torch.randint(-9, 10, (16, 5), generator=torch.Generator().manual_seed(11))
    start = torch.tensor([40, 30, 26, 19, 18])

    def lists(images: Tensor) -> list[dict[str, float]]:
        scores = strength * (levels(images).flatten(1) - 128) @ weights / 1000 + start
        return [
            {f"label {at}": score / 100 for at, score in enumerate(row) if score >= 20}
            for row in scores.double().tolist()
        ]

    return lists


def is_possible(lists: Callable[[Tensor], Any], image: Tensor, success: str) -> bool:
    """Whether one black or white pixel is enough, by trying all of them."""
    (clean,) = lists(image[None])
    label = max(clean, key=clean.__getitem__)
    for pixel, colour in product(range(16), (0.0, 1.0)):
        changed = image.flatten().clone()
        changed[pixel] = colour
        (said,) = lists(changed.view(1, *SMALL))
        top = max(said, key=said.__getitem__, default=None)
        tied = sum(score == max(said.values()) for score in said.values()) > 1
        if success == "absent" and label not in said:
            return True
        if success == "new" and top is not None and not tied and top not in clean:
            return True
        if success == "top1" and (label not in said or (top != label and said[label] < said[top])):
            return True
    return False


@pytest.mark.parametrize(("success", "strength"), [("top1", 5), ("absent", 17), ("new", 17)])
@pytest.mark.parametrize(("name", "queries"), [("sparse-rs", 200), ("pixel-bandit", 100)])
def test_finds_one_pixel_where_brute_force_does(name, queries, success, strength) -> None:
    lists, names = linear_lists(strength), [f"label {at}" for at in range(5)]
    grey = torch.randint(118, 139, (16, *SMALL), generator=torch.Generator().manual_seed(3)) / 255
    tops = [max(said, key=said.__getitem__) for said in lists(grey)]
    labels = torch.tensor([names.index(top) for top in tops])
    victim = wrap(lists, output="confidences", named=True)
    assert isinstance(victim, FunctionVictim) and victim.vocabulary is not None
    victim.vocabulary.begin(names[: int(labels.max()) + 1])
    result = ATTACKS[name](1, queries)(victim, grey, labels, success=success)
    possible = [is_possible(lists, image, success) for image in grey]
    assert result.success.tolist() == possible
    assert 0 < sum(possible) < len(possible)


def test_with_all_scores_pixel_bandit_hears_the_strongest_classes_as_ever() -> None:
    images = random_images(6, SHAPE)
    labels = MODEL(images).argmax(1)
    whole = wrap(MODEL, output="logits")
    listed = wrap(chances, output="probabilities", gives="partial")
    attack = PixelBandit(3, 30)
    asked: dict[str, list[Tensor]] = {}
    for name, victim in (("whole", whole), ("listed", listed)):
        asked[name] = []
        attack(
            victim,
            images,
            labels,
            on_round=lambda r, n=name: asked[n].append(r.search.log_odds.heard),
        )
    assert asked["whole"][-1].all() and asked["listed"][-1].sum(1).unique().tolist() == [2]
