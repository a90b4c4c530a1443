"""Victims that change the images they are given: nobody else's images change."""

import numpy as np
import pytest
import torch
from models import integer_model, own_labels, random_images
from test_contract import ATTACKS, Case
from torch import nn

import brusle
from brusle.attacks import PGD0, BruSLe, Pointwise
from brusle.errors import VictimUnavailable
from brusle.trouble import Patience
from brusle.victims import wrap

SHAPE, CLASSES = (3, 12, 12), 5


def spoiled(images: torch.Tensor) -> None:
    images.sub_(0.5).div_(0.25)


def spoiling(function):
    """``function``, which leaves nothing of its input."""

    def answer(images: torch.Tensor) -> torch.Tensor:
        scores = function(images).clone()
        with torch.no_grad():
            spoiled(images)
        return scores

    return answer


def rows(result) -> tuple:
    return result.status, result.queries.tolist(), result.images.numpy().tobytes()


@pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])
@pytest.mark.parametrize("name", ATTACKS)
def test_results_are_those_of_a_victim_that_leaves_its_input_alone(name, targeted) -> None:
    if name == "bayes-opt":
        pytest.importorskip("botorch", reason="BayesOpt needs the extra brusle[bayes]")
    case = Case(8, targeted)
    images = case.images.clone()
    victim = wrap(spoiling(case.model.function), output="logits", differentiable=True)
    attack = ATTACKS[name](3, 20)
    expected = case.attack(attack)
    assert rows(case.attack(attack, victim=victim)) == rows(expected)
    assert torch.equal(case.images, images)


@pytest.mark.parametrize("size", [1, 3, 64])
def test_the_callers_arrays_stay_as_they_are(size) -> None:
    model = integer_model(SHAPE, CLASSES)
    images = random_images(6, SHAPE)
    labels = own_labels(model, images)

    def answer(x: np.ndarray) -> np.ndarray:
        scores = model.function(torch.from_numpy(x.copy())).numpy()
        x *= 0.9
        return scores

    given = images.numpy().copy()
    kept = given.copy()
    victim = wrap(answer, output="logits", arrays="numpy")
    result = BruSLe(3, 30)(victim, given, labels.numpy(), batch_size=size)
    assert np.array_equal(given, kept)
    assert rows(result) == rows(BruSLe(3, 30)(model.victim(), images, labels))


class Normalising(nn.Module):
    """Normalises in place, as many nets do, also where it is asked for gradients."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(3 * 144, CLASSES, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spoiled(x)
        return x.flatten(1) @ self.weight


class Tidy(Normalising):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.clone())


@pytest.mark.parametrize("attack", [BruSLe(3, 30), Pointwise(20, 40), PGD0(3, 20)])
def test_a_module_that_normalises_in_place(attack) -> None:
    images = random_images(12, SHAPE)
    labels = Tidy()(images).argmax(1)
    result = attack(Normalising(), images, labels)
    assert "error" not in result.status
    assert rows(result) == rows(attack(Tidy(), images, labels))
    again = Tidy()(result.images[result.success]).argmax(1)
    assert (again != labels[result.success]).all()


def test_a_call_that_is_made_again_is_made_with_the_same_images() -> None:
    model = integer_model(SHAPE, CLASSES)
    images = random_images(6, SHAPE)
    labels = own_labels(model, images)
    calls = 0

    def answer(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        scores = model.function(x)
        if calls % 3 == 0:
            spoiled(x)
            raise VictimUnavailable("busy")
        return scores

    patience = Patience(waits=3, first=0, sleep=lambda seconds: None)
    victim = wrap(answer, output="logits", patience=patience)
    result = BruSLe(3, 30)(victim, images, labels)
    assert rows(result) == rows(BruSLe(3, 30)(model.victim(), images, labels))


@pytest.mark.parametrize("spoils", [True, False])
def test_check_names_it_and_does_not_blame_chance(spoils) -> None:
    model = integer_model(SHAPE, CLASSES)
    images = random_images(20, SHAPE)
    function = spoiling(model.function) if spoils else model.function
    found = brusle.check(wrap(function, output="logits"), (images, own_labels(model, images)))
    by_topic = {finding.topic: finding for finding in found.findings}
    assert by_topic["determinism"].verdict == "ok"
    assert by_topic["input in place"].verdict == ("warning" if spoils else "ok")
