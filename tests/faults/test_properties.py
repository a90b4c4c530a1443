"""Random attacks on random problems: no exception but ours, no query too many, no verdict unasked.

Every example is an attack with its options, wrapped or not, small limits, averaged answers, images
of any size from two pixels on, any number of classes, on a victim that counts for itself.
"""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from models import integer_model, own_labels, random_images

from brusle.attacks import Ensemble, Minimal, Restarts, make
from brusle.attacks.standard import standard
from brusle.errors import BrusleError, InputError
from brusle.search import Attack
from brusle.victims import wrap

SPECS = (
    "brusle",
    "brusle:colours=2",
    "brusle:colours=3,palette=uniform,initial=4",
    "brusle:variant=reference",
    "brusle:palette=inverted,schedule=printed",
    "pixel-bandit",
    "sparse-rs",
    "sparse-rs:space=feature",
    "sparse-rs:synthetic=true",
    "sparse-evo",
    "sparse-evo:variant=loss",
    "sparse-evo:variant=synthetic",
    "pointwise",
    "l0-hsja",
    "l0-hsja:projection=authors",
    "one-pixel",
    "one-pixel:variant=torchattacks",
    "pgd0",
    "sigma-zero",
)
WRAPPERS = ("none", "restarts", "ensemble", "standard", "minimal")


@dataclass(frozen=True)
class Example:
    spec: str
    wrapper: str
    pixels: int
    queries: int
    eot: int = 1
    times: int = 1
    shape: tuple[int, int, int] = (3, 6, 6)
    classes: int = 4
    images: int = 4
    targeted: bool = False
    batch_size: int = 3

    def victim(self, model):
        return wrap(model, output="logits", randomised=self.eot > 1, differentiable=True)

    def attack(self, victim) -> Attack:
        each = self.queries // self.times
        if self.wrapper == "standard":
            return standard(victim, self.pixels, self.queries)
        if self.wrapper == "minimal":
            return make(self.spec, self.pixels, self.queries, minimal=True)
        one = make(self.spec, self.pixels, each if self.wrapper != "none" else self.queries)
        if self.wrapper == "restarts":
            return Restarts(one, self.times)
        if self.wrapper == "ensemble":
            return Ensemble([one, make("brusle", self.pixels, self.queries)])
        return one


EXAMPLES = st.builds(
    Example,
    spec=st.sampled_from(SPECS),
    wrapper=st.sampled_from(WRAPPERS),
    pixels=st.integers(1, 9),
    queries=st.integers(1, 40),
    eot=st.sampled_from([1, 1, 2, 8]),
    times=st.integers(1, 4),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 7), st.integers(1, 7)),
    classes=st.integers(2, 7),
    images=st.integers(1, 5),
    targeted=st.booleans(),
    batch_size=st.integers(1, 6),
)
ONCE = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def hold(case: Example) -> None:
    """What holds of every attack."""
    model = integer_model(case.shape, case.classes)
    images = random_images(case.images, case.shape)
    if case.shape[1] * case.shape[2] < 2:
        with pytest.raises(InputError, match="single pixels"):
            make(case.spec, case.pixels, case.queries)(model.victim(), images, 0)
        return
    labels = own_labels(model, images)
    targets = (labels + 1) % case.classes if case.targeted else None
    starts = random_images(case.images, case.shape, seed=1) if case.targeted else None
    model.seen, victim = 0, case.victim(model)
    options = {"starts": starts, "eot": case.eot, "batch_size": case.batch_size}
    refusal = ""
    try:
        attack = case.attack(victim)
        result = attack(victim, images, labels, targets, **options)
    except BrusleError as error:
        refusal = str(error)
    if refusal:
        event("refused")
        assert model.seen == 0, f"refused after {model.seen} queries: {refusal}"
        assert "\n" not in refusal
        return
    assert int((result.ledger.total + result.ledger.lost).sum()) == model.seen
    assert (result.queries == result.ledger.attack).all()
    assert (result.queries <= attack.queries).all()
    assert (result.queries % case.eot == 0).all()
    for at, status in enumerate(result.status):
        event(status)
        assert status in ("success", "failed", "skipped", "error")
        assert status != "failed" or result.queries[at] >= case.eot
        assert status != "success" or 1 <= result.pixels[at] <= case.pixels
    found = result.images[result.success]
    seen = model.function(found).argmax(1)
    if targets is None:
        assert (seen != labels[result.success]).all()
    else:
        assert (seen == targets[result.success]).all()


@example(Example("brusle", "restarts", 3, 20, eot=8, times=3))
@example(Example("brusle", "standard", 3, 5, eot=8))
@example(Example("brusle", "minimal", 3, 20, eot=8))
@example(Example("brusle", "minimal", 3, 39, eot=8))
@example(Example("brusle", "minimal", 3, 41, eot=8))
@example(Example("brusle:colours=2", "minimal", 3, 40))
@example(Example("brusle:colours=2", "minimal", 1, 40, shape=(3, 1, 2)))
@example(Example("sparse-rs", "none", 2, 9, shape=(1, 2, 1), classes=2))
@settings(ONCE, max_examples=120)
@given(EXAMPLES)
def test_attacks_hold_what_they_promise(case) -> None:
    hold(case)


@pytest.mark.slow
@settings(ONCE, max_examples=3000)
@given(EXAMPLES)
def test_many_more_attacks_hold_what_they_promise(case) -> None:
    hold(case)


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (make("brusle:restarts=3", 3, 20), "6 queries for each search"),
        (make("brusle", 3, 20, minimal=True), "4 queries for each search"),
        (Ensemble([make("brusle", 3, 50), make("sparse-rs", 3, 7)]), "7 queries for each search"),
        (Restarts(make("brusle", 3, 7), 9), "7 queries for each search"),
        (Minimal(make("brusle", 3, 7), 900), "7 queries for each search"),
        (make("brusle", 3, 7), "7 queries are not enough for one answer of eot=8"),
    ],
    ids=["restarts", "minimal", "ensemble", "Restarts", "Minimal", "plain"],
)
def test_a_search_that_cannot_pay_an_answer_is_refused_before_the_first_query(
    attack, words
) -> None:
    model = integer_model((3, 6, 6), 4)
    victim = wrap(model, output="logits", randomised=True)
    with pytest.raises(InputError, match=words):
        attack(victim, random_images(4, (3, 6, 6)), torch.zeros(4, dtype=torch.int64), eot=8)
    assert model.seen == 0
