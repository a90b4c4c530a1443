"""Attacks made again from what a store says of them."""

import pytest

from brusle.attacks import ATTACKS, BruSLe, Ensemble, Minimal, PixelBandit, Restarts
from brusle.evaluation.record import Setting
from brusle.evaluation.storing.remaking import remade

OTHERS = [
    BruSLe(3, 70, palette="uniform", colours=2, lambda_0=0.2),
    PixelBandit(3, 70, memory=9),
    Restarts(BruSLe(3, 70, variant="reference"), 4),
    Minimal(PixelBandit(3, 70), 900),
]


def read_back(attack) -> Setting:
    stored = Setting.of(attack, "untargeted").model_dump_json()
    return Setting.model_validate_json(stored)


@pytest.mark.parametrize(
    "attack", [*(kind(pixels=5, queries=40) for kind in ATTACKS.values()), *OTHERS], ids=repr
)
def test_an_attack_is_what_it_was(attack) -> None:
    assert remade(read_back(attack)) == attack


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "os.system"},
        {"options": {"palette": "none of ours"}},
        {"options": {"option of tomorrow": 1}},
        {"kind": "Restarts", "options": {}},
        {"kind": "Restarts", "options": {"attack": {"kind": "BruSLe"}, "times": 2}},
        {"kind": "Minimal", "options": {"attack": 7}},
    ],
    ids=str,
)
def test_what_is_none_of_ours_is_left_alone(change) -> None:
    assert remade(read_back(BruSLe(3)).model_copy(update=change)) is None


def test_an_ensemble_is_no_single_attack() -> None:
    assert remade(read_back(Ensemble([BruSLe(3), PixelBandit(3)]))) is None
