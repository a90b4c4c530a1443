"""What brusle itself has stored holds: no attack or victim makes rows that look tampered with."""

from pathlib import Path

import pytest
import torch
from models import integer_model, own_labels, random_images

import brusle
from brusle import attacks
from brusle.attacks import make, standard
from brusle.defences import LabelOnly, RandomNoise, TopScores
from brusle.evaluation.storing.recheck import recheck
from brusle.victims import wrap

pytestmark = pytest.mark.slow

SHAPE, CLASSES = (3, 6, 6), 4
NAMES = sorted(attacks.ATTACKS)


def net(output: str = "logits"):
    torch.manual_seed(0)
    linear = torch.nn.Linear(3 * 36, CLASSES)
    with torch.no_grad():  # so that no class is said of no image
        linear.bias -= linear(random_images(100, SHAPE).flatten(1)).mean(0)
    layers = [torch.nn.Flatten(), linear]
    if output == "probabilities":
        layers.append(torch.nn.Softmax(1))
    module = torch.nn.Sequential(*layers)
    return wrap(module, output=output, shape=SHAPE, classes=["a", "b", "c", "d"])


def labelled(victim, levels: bool = True):
    """Two images of each class; one more has a wrong label, and so will not be attacked."""
    images = random_images(100, SHAPE) * (1 if levels else 0.987)
    labels = victim(images).argmax(1)
    chosen = [i for c in range(CLASSES) for i in (labels == c).nonzero()[:2, 0].tolist()]
    images, labels = images[[99, *chosen]], labels[[99, *chosen]]
    labels[0] = (labels[0] + 1) % CLASSES
    return images, labels


def check(folder: Path, victim, data, runs, goal=("untargeted", "targeted"), **options) -> None:
    run = brusle.evaluate(victim, data, runs, goal, folder, on_warning=lambda _: None, **options)
    found = recheck(folder, victim, data)
    assert found.mismatches == () and found.rows == sum(1 for _ in run.rows()) == found.sound


@pytest.mark.parametrize("output", ["logits", "probabilities"])
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_every_attack_hold(name, output, tmp_path) -> None:
    victim = net(output)
    check(tmp_path, victim, labelled(victim), [make(name, 3, 30, minimal=False)])


@pytest.mark.parametrize("name", ["brusle", "pixel-bandit", "sparse-rs", "pointwise"])
def test_rows_of_searches_for_the_fewest_pixels_hold(name, tmp_path) -> None:
    victim = net()
    check(tmp_path, victim, labelled(victim), [make(name, 8, 60, minimal=True)])


def test_rows_of_several_attacks_together_hold(tmp_path) -> None:
    victim = net()
    several = [standard(victim, 3, 20), attacks.Restarts(attacks.BruSLe(2, 12), 3)]
    check(tmp_path, victim, labelled(victim), several)


@pytest.mark.parametrize("eot", [1, 4])
def test_rows_of_a_randomised_victim_hold(eot, tmp_path) -> None:
    victim = RandomNoise(net(), 0.2)
    data = labelled(victim.victim)
    runs = [attacks.BruSLe(4, 40), attacks.Pointwise(4, 40), attacks.PixelBandit(4, 40)]
    brusle.evaluate(victim, data, runs, out=tmp_path, eot=eot, on_warning=lambda _: None)
    assert not recheck(tmp_path, victim, data).failed


@pytest.mark.parametrize("defence", [LabelOnly, TopScores])
def test_rows_of_victims_that_give_less_hold(defence, tmp_path) -> None:
    victim = defence(net())
    runs = [attacks.Pointwise(5, 40), attacks.SparseEvo(5, 40), attacks.L0HSJA(5, 40)]
    check(tmp_path, victim, labelled(victim.victim), runs)


def test_rows_of_images_between_8_bit_levels_hold(tmp_path) -> None:
    victim = net()
    runs = [attacks.BruSLe(4, 40), attacks.SigmaZero(4, 40), attacks.Pointwise(4, 40)]
    check(tmp_path, victim, labelled(victim, levels=False), runs)


def test_rows_with_errors_hold(tmp_path) -> None:
    model = integer_model(SHAPE, CLASSES)
    images = random_images(6, SHAPE)
    labels = own_labels(model, images)
    bad = images[2, 0, 0, 0]
    calls = []

    def failing(batch):
        calls.append(len(batch))
        if len(calls) > 12 and bool((batch[:, 0, 0, 0] == bad).any()):
            raise ValueError("no answer to this one")
        return model.function(batch)

    victim = wrap(failing, output="logits", shape=SHAPE)
    brusle.evaluate(
        victim, (images, labels), [attacks.BruSLe(2, 40)], out=tmp_path, on_warning=lambda _: None
    )
    found = recheck(tmp_path, wrap(model.function, output="logits", shape=SHAPE), (images, labels))
    assert found.mismatches == () and found.rows > found.checked


def test_a_loss_that_is_zero_from_below_holds(tmp_path) -> None:
    """SQLite drops the sign of a zero: a tie of two classes has such a loss."""
    victim = wrap(lambda x: torch.tensor([[1.0, 1.0]]).repeat(len(x), 1), output="logits")
    images = random_images(3, SHAPE)
    data = (images, torch.zeros(3, dtype=torch.int64))
    check(tmp_path, victim, data, make("brusle", 2, 5), "untargeted")
