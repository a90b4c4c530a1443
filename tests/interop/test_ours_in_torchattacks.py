"""Our attacks in torchattacks, the real package: same images, successes and queries as natively.

It wants an old version of requests, so it lies in a folder of its own.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from ours_in_theirs import (
    CLASSES,
    IDS,
    IMAGES,
    LABELS,
    MATRIX,
    MEAN,
    MODEL,
    STD,
    TARGETS,
    TRUE,
    CountingNet,
    asked,
    assert_same,
    native,
    starts_for,
)

import brusle
from brusle.attacks import BruSLe, PixelBandit, SigmaZero

pytestmark = pytest.mark.interop

PEERS = Path(os.environ.get("BRUSLE_PEERS", Path(sys.prefix) / "peers"))


@pytest.fixture(autouse=True)
def torchattacks(monkeypatch):
    if not (PEERS / "torchattacks").exists():
        pytest.skip(
            f"torchattacks is not in {PEERS}: python -m pip install --no-deps "
            f"--target {PEERS} torchattacks==3.5.1"
        )
    monkeypatch.syspath_prepend(str(PEERS))
    package = pytest.importorskip("torchattacks")
    assert Path(package.__file__).is_relative_to(PEERS)
    return package


@pytest.mark.parametrize(
    ("attack", "targeted"),
    [
        pytest.param(*case, id=name)
        for case, name in zip(MATRIX, IDS, strict=True)
        if starts_for(*case) is None  # torchattacks has no place for starting images
    ],
)
def test_does_what_the_native_call_does(attack, targeted, torchattacks) -> None:
    net = CountingNet()
    theirs = brusle.interop.torchattacks(attack, net, seed=5)
    assert isinstance(theirs, torchattacks.attack.Attack) and theirs.attack_mode == "default"
    if targeted:
        theirs.set_mode_targeted_by_label(quiet=True)
    adversarial = theirs(IMAGES, TARGETS if targeted else LABELS)
    expected = native(attack, targeted, TRUE if targeted else LABELS, seed=5)
    assert_same(theirs.result, expected)
    assert net.seen == asked(expected)
    assert torch.equal(adversarial, expected.images)
    assert adversarial.device == theirs.device and adversarial.dtype == torch.float32
    assert torch.equal(theirs.forward(IMAGES, TARGETS if targeted else LABELS), adversarial)
    assert net.training  # as it was


@pytest.mark.parametrize("attack", [PixelBandit(1, 60), SigmaZero(1, 60)], ids=["black", "white"])
def test_normalised_images_come_back_normalised(attack) -> None:
    net = CountingNet(mean=MEAN, std=STD)
    theirs = brusle.interop.torchattacks(attack, net)
    theirs.set_normalization_used(mean=MEAN, std=STD)
    normal = theirs.normalize(IMAGES)
    adversarial = theirs(normal, LABELS)
    expected = native(attack, False, LABELS)
    assert_same(theirs.result, expected)
    assert net.seen == asked(expected)
    changed = expected.images != IMAGES
    assert torch.equal(adversarial != normal, changed)
    assert torch.allclose(theirs.inverse_normalize(adversarial), expected.images, atol=1e-6)
    fooled = (net(adversarial).argmax(1) != LABELS) & (expected.pixels <= 1)
    assert torch.equal(fooled, expected.success | (LABELS != TRUE))


def test_targets_by_a_function_and_back_to_default(capsys) -> None:
    theirs = brusle.interop.torchattacks(BruSLe(4, 60), CountingNet())
    theirs.set_mode_targeted_by_function(lambda images, labels: (labels + 1) % CLASSES)
    theirs(IMAGES, TRUE)
    assert_same(theirs.result, native(BruSLe(4, 60), True))
    theirs.set_mode_default()
    theirs(IMAGES, LABELS)
    assert_same(theirs.result, native(BruSLe(4, 60), False, LABELS))
    assert "targeted(custom)" in capsys.readouterr().out


@pytest.mark.parametrize("kth", [1, 3])
def test_least_likely_targets_are_those_of_torchattacks_and_cost_no_query(kth) -> None:
    net = CountingNet()
    theirs = brusle.interop.torchattacks(BruSLe(4, 60), net)
    theirs.set_mode_targeted_least_likely(kth_min=kth, quiet=True)
    theirs(IMAGES, TRUE)
    assert net.seen == asked(theirs.result)
    targets = theirs.get_least_likely_label(IMAGES, TRUE)  # their own way to find them
    assert torch.equal(theirs.result.problems.targets, targets)
    assert torch.equal(targets, MODEL.function(IMAGES).argsort(1)[:, kth - 1])
    assert_same(theirs.result, BruSLe(4, 60)(CountingNet(), IMAGES, TRUE, targets))
    theirs.set_mode_targeted_least_likely(kth_min=4, quiet=True)
    with pytest.raises(brusle.InputError, match="kth_min is 4, but there are 3 other labels"):
        theirs(IMAGES, TRUE)


def test_random_targets_depend_on_seed_and_image_alone() -> None:
    net = CountingNet()

    def targets(seed: int, images=IMAGES, labels=TRUE):
        theirs = brusle.interop.torchattacks(BruSLe(4, 5), net, seed=seed)
        theirs.set_mode_targeted_random(quiet=True)
        before, state = net.seen, torch.get_rng_state()
        theirs(images, labels)
        assert net.seen - before == asked(theirs.result)
        assert torch.equal(torch.get_rng_state(), state)
        return theirs.result.problems.targets

    drawn = targets(0)
    assert (drawn != TRUE).all()
    assert torch.equal(targets(0, IMAGES.flip(0), TRUE.flip(0)), drawn.flip(0))
    assert not torch.equal(targets(1), drawn)
    many = torch.stack([targets(seed) for seed in range(30)])
    others = (many - TRUE) % CLASSES
    assert np.bincount(others.flatten().numpy(), minlength=CLASSES)[1:].min() > 70  # of 100 each


def test_images_that_are_their_target_already_are_left_alone() -> None:
    theirs = brusle.interop.torchattacks(BruSLe(4, 60), CountingNet())
    theirs.set_mode_targeted_by_label(quiet=True)
    targets = TARGETS.clone()
    targets[0] = TRUE[0]
    adversarial = theirs(IMAGES, targets)
    assert theirs.result.status[0] == "skipped" and torch.equal(adversarial[0], IMAGES[0])


def test_saves_what_torchattacks_loads(tmp_path, torchattacks, capsys) -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(IMAGES, LABELS), 5)
    theirs = brusle.interop.torchattacks(BruSLe(1, 60), CountingNet())
    robust, _, _ = theirs.save(
        loader, str(tmp_path / "adv.pt"), return_verbose=True, save_predictions=True
    )
    expected = native(BruSLe(1, 60), False, LABELS)
    assert robust == pytest.approx(100 * (1 - (expected.success | (LABELS != TRUE)).float().mean()))
    stored = theirs.load(str(tmp_path / "adv.pt"), load_predictions=True)
    images, labels, said = (torch.cat(parts) for parts in zip(*stored, strict=True))
    assert torch.equal(images, expected.images) and torch.equal(labels, LABELS)
    assert torch.equal(said != labels, expected.success | (LABELS != TRUE))
    assert len(theirs.result) == 5  # of the last batch
    assert "Robust accuracy" in capsys.readouterr().out


def test_works_as_a_part_of_multi_attack(torchattacks) -> None:
    net = CountingNet()
    parts = [
        brusle.interop.torchattacks(BruSLe(1, 60), net),
        brusle.interop.torchattacks(PixelBandit(1, 60), net),
    ]
    adversarial = torchattacks.MultiAttack(parts)(IMAGES, LABELS)
    fooled = net(adversarial).argmax(1) != LABELS
    singles = [native(one, False, LABELS).success for one in (BruSLe(1, 60), PixelBandit(1, 60))]
    assert torch.equal(fooled, singles[0] | singles[1] | (LABELS != TRUE))


def test_what_it_says_of_itself() -> None:
    theirs = brusle.interop.torchattacks(BruSLe(4, 60), CountingNet())
    assert theirs.result is None and repr(theirs).startswith("BruSLe(")
    assert "pixels=4, queries=60" in repr(theirs) and "_ours" not in repr(theirs)
    theirs(IMAGES, LABELS)
    theirs(IMAGES, LABELS)
    assert repr(theirs).startswith("BruSLe(")


@pytest.mark.parametrize(
    ("images", "labels", "reason"),
    [
        (IMAGES, None, "labels are missing"),
        (IMAGES * 2, LABELS, "must lie in [0, 1] but reach"),
        (IMAGES, LABELS[:2], "labels have shape"),
        (IMAGES, LABELS + CLASSES, "out of range"),
    ],
)
def test_refuses_with_a_line(images, labels, reason) -> None:
    with pytest.raises(brusle.InputError) as error:
        brusle.interop.torchattacks(BruSLe(4, 60), CountingNet())(images, labels)
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_refuses_what_it_cannot_do() -> None:
    theirs = brusle.interop.torchattacks(BruSLe(4, 60), CountingNet())
    with pytest.raises(brusle.InputError, match="take images and labels, and nothing else"):
        theirs(IMAGES, LABELS, 3)
    theirs.set_model_training_mode(True)
    with pytest.raises(brusle.InputError, match="leave set_model_training_mode out"):
        theirs(IMAGES, LABELS)
    with pytest.raises(brusle.InputError, match="is no nn.Module, which torchattacks wants"):
        brusle.interop.torchattacks(BruSLe(4, 60), MODEL)
    with pytest.raises(brusle.InputError, match="is no attack of brusle"):
        brusle.interop.torchattacks("brusle", CountingNet())


def test_a_refusal_leaves_things_as_they_were() -> None:
    net = CountingNet(mean=MEAN, std=STD).train()
    theirs = brusle.interop.torchattacks(BruSLe(1, 60), net)
    theirs.set_normalization_used(mean=MEAN, std=STD)
    normal = theirs.normalize(IMAGES)
    with pytest.raises(brusle.InputError, match="labels have shape"):
        theirs(normal, LABELS[:2])
    assert net.training
    theirs(normal, LABELS)
    assert_same(theirs.result, native(BruSLe(1, 60), False, LABELS))
