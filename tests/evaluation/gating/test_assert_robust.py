"""``brusle.testing.assert_robust``, as a function and as pytest's fixture."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from models import integer_model, own_labels, random_images

import brusle
import brusle.testing
from brusle.errors import InputError

MODEL, IMAGES = integer_model((3, 8, 8), 4), random_images(100, (3, 8, 8), seed=4)
DATA = (IMAGES, own_labels(MODEL, IMAGES))
AT = {"pixels": 1, "queries": 6, "attacks": "brusle"}


def test_it_returns_what_was_measured_after_few_images() -> None:
    MODEL.seen = 0
    verdict = brusle.testing.assert_robust(MODEL.victim(), DATA, min_robust=30, **AT)
    (answer,) = verdict.answers
    assert verdict.result == "pass" and answer.in_turn and answer.images < 50
    assert answer.low >= 0.3 and answer.about == ("BruSLe untargeted, 1 px",)


@pytest.mark.parametrize(
    ("least", "limit", "reason"),
    [(90, None, "the gate fails"), (60, 8, "cannot be decided: too few images to tell")],
)
def test_it_raises_and_says_what_was_measured(least, limit, reason) -> None:
    with pytest.raises(AssertionError) as raised:
        brusle.testing.assert_robust(MODEL.victim(), DATA, min_robust=least, limit=limit, **AT)
    said = str(raised.value)
    assert reason in said.splitlines()[0] and "counting on arrays" in said
    assert (
        f"robust accuracy of at least {least} % at 1px,6q" in said and "images are robust" in said
    )
    assert len(said.splitlines()) < 8


def test_it_can_take_a_fixed_number_of_images_and_keep_the_run(tmp_path) -> None:
    verdict = brusle.testing.assert_robust(
        MODEL.victim(), DATA, min_robust=30, limit=60, until_decided=False, out=tmp_path, **AT
    )
    assert verdict.answers[0].images == 60 and not verdict.answers[0].in_turn
    assert (tmp_path / "rows.csv").exists()


def test_a_module_is_in_training_afterwards_as_before() -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)).train()
    labels = net(IMAGES).argmax(1)
    for least in (1, 99):
        try:
            brusle.testing.assert_robust(net, (IMAGES, labels), min_robust=least, **AT)
        except AssertionError:
            assert least == 99
    assert net.training


def test_a_wrong_request_is_no_failed_assertion() -> None:
    with pytest.raises(InputError, match="between 0 and 100"):
        brusle.testing.assert_robust(MODEL.victim(), DATA, min_robust=100, **AT)
    other = brusle.attacks.BruSLe(pixels=2, queries=6)
    with pytest.raises(InputError, match="no attack with 1 pixels"):
        brusle.testing.assert_robust(
            MODEL.victim(), DATA, min_robust=50, pixels=1, queries=6, attacks=other
        )


TESTS = """
import sys

def test_nothing_heavy_is_loaded_before_it_is_used():
    assert "brusle.testing.plugin" in sys.modules and "torch" not in sys.modules

def test_it_is_robust(assert_robust):
    found = assert_robust("zoo:cifar10-resnet20-l0", min_robust=20, pixels=2, queries=10)
    assert found.result == "pass"

def test_it_is_not(assert_robust):
    assert_robust("zoo:cifar10-resnet20", min_robust=99, pixels=5, queries=20, limit=30)
"""


@pytest.mark.slow
def test_the_fixture_is_found_by_pytest_where_brusle_is_installed(tmp_path: Path) -> None:
    """Pytest finds the entry point of the installed package by itself."""
    (tmp_path / "test_release.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_release.py"],
        cwd=tmp_path,
        env={"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    failed = done.stdout.partition("FAILURES")[2]
    assert "AssertionError: zoo:cifar10-resnet20 on sample: the gate fails" in failed
    assert "src/brusle/testing/__init__.py" not in failed  # the test and the message, and no more
