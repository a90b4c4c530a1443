"""Attacks by name: two spellings of options, and attacks that other packages bring."""

import json
import sys
from pathlib import Path

import pytest
from entry import run
from installed import install

import brusle
from brusle.attacks import ATTACKS, BruSLe, Minimal, Restarts, SparseRS, known_attacks, make
from brusle.errors import InputError


@pytest.mark.parametrize(
    "spec",
    [
        "brusle?palette=uniform&colours=2",
        "brusle:palette=uniform,colours=2",
        "brusle:palette=uniform?colours=2",
    ],
)
def test_both_spellings_are_the_same_attack(spec) -> None:
    assert make(spec, 8, 100) == BruSLe(8, 100, palette="uniform", colours=2)
    assert make(f"{spec}{'&' if '?' in spec else ','}restarts=4", 8, 100) == Restarts(
        BruSLe(8, 25, palette="uniform", colours=2), 4
    )
    assert make(spec, 8, 100, minimal=True) == Minimal(
        BruSLe(8, 20, palette="uniform", colours=2), 100
    )


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_is_made_by_its_name_alone(name) -> None:
    assert make(name, 3, 50) == make(f"{name}:", 3, 50) == make(f"{name}?", 3, 50)
    assert make(name, 3, 50) == ATTACKS[name](3, 50)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("brusel:colours=2", "unknown attack 'brusel:colours=2': did you mean 'brusle'?"),
        ("", "unknown attack '': known are brusle, pixel-bandit,"),
        ("brusle:colour=2", "has no option 'colour': did you mean 'colours'?"),
        ("brusle?colour=2", "has no option 'colour': did you mean 'colours'?"),
        ("brusle:colour", "has no option 'colour': did you mean 'colours'?"),
        ("brusle:5", "has no option '5': known are restarts, "),
        ("brusle:pixels=5", "has no option 'pixels'"),
        (
            "brusle:colours",
            "option 'colours' of 'brusle:colours' has no value: write colours=VALUE",
        ),
        ("brusle:colours=2?colours=3", "is given twice: leave one out"),
        ("brusle?palette=pink", "palette is 'pink': choose from "),
        ("brusle?restarts=0", "restarts is 0: it must be an integer of at least 1"),
        ("brusle?restarts=x", "restarts is 'x': it must be an integer of at least 1"),
        ("brusle?restarts=101", "100 queries are not enough for 101 restarts"),
    ],
)
def test_what_is_wrong_with_a_name(spec, message) -> None:
    with pytest.raises(InputError) as error:
        make(spec, 8, 100)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_minimal_search_restarts_by_itself() -> None:
    with pytest.raises(InputError, match="a minimal search restarts by itself"):
        make("brusle?restarts=2", 8, 100, minimal=True)


# plugins

PLUGIN = """
import os
import pathlib
from dataclasses import dataclass
from brusle.attacks import SparseRS
from brusle.errors import InputError

pathlib.Path("imported").touch()

@dataclass(frozen=True)
class Mine(SparseRS):
    spread: int = 3

    def __post_init__(self):
        super().__post_init__()
        if self.spread < 1:
            raise InputError(f"spread is {self.spread}: it must be at least 1")

def factory(pixels, queries, share=0.5):
    return SparseRS(pixels, queries, alpha_init=share)

def wrong(pixels, queries):
    return [pixels, queries]

def fails(pixels, queries):
    return {}["weights"]  # line 26

def leaves(pixels, queries):
    os._exit(0)

number = 3
"""
POINTS = ("Mine", "factory", "wrong", "fails", "leaves", "gone", "number")


@pytest.fixture
def plugin(tmp_path, monkeypatch) -> Path:
    """An installed package, as pip would leave it; the file ``imported`` tells if it was used."""
    points = {name.lower(): name for name in POINTS}
    points |= {"absent": "brusle_not_there:Attack", "brusle": "wrong"}
    install(tmp_path, "brusle_rivals", PLUGIN, attacks=points)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("brusle_rivals", None)


def test_a_plugin_brings_an_attack(plugin) -> None:
    attack = make("mine?spread=5&alpha_init=0.4", 3, 40)
    assert type(attack).__name__ == "Mine" and isinstance(attack, SparseRS)
    assert (attack.pixels, attack.queries, attack.spread, attack.alpha_init) == (3, 40, 5, 0.4)
    assert make("mine:spread=5,alpha_init=0.4", 3, 40) == attack
    assert make("factory:share=0.25", 3, 40) == SparseRS(3, 40, alpha_init=0.25)
    assert make("mine:restarts=2", 3, 40) == Restarts(make("mine", 3, 20), 2)
    assert make("brusle", 3, 40) == BruSLe(3, 40)  # a plugin cannot replace what brusle has itself


def test_plugins_are_listed_and_not_imported(plugin) -> None:
    assert known_attacks()["mine"] == "From brusle_rivals:Mine"
    assert known_attacks()["brusle"].startswith("BruSLe")
    assert list(known_attacks())[: len(ATTACKS)] == list(ATTACKS)
    answer = run("list", "attacks", "--json")
    assert json.loads(answer.stdout)["attacks"] == known_attacks()
    assert "mine          From brusle_rivals:Mine\n" in run("list", "attacks").stdout
    with pytest.raises(InputError, match="unknown attack 'mind': did you mean 'mine'"):
        make("mind", 3, 40)
    assert brusle.attacks.risk("mine?a=1") == "runs the installed plugin brusle_rivals:Mine"
    assert brusle.attacks.risk("brusle") == ""
    assert not (plugin / "imported").exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine?spred=5", r"'mine\?spred=5' has no option 'spred': did you mean 'spread'\?$"),
        ("mine?spread=0", r"failed in brusle_rivals:Mine: spread is 0: it must be at least 1$"),
        ("wrong", "brusle_rivals:wrong returned a list: it must return an attack"),
        ("fails", r"in brusle_rivals:fails: KeyError: 'weights' \(.*brusle_rivals.py, line 26\)$"),
        ("leaves", "failed in brusle_rivals:leaves: SystemExit"),
        ("gone", "brusle_rivals:gone for the attack 'gone' cannot be loaded, install its package"),
        ("absent", "brusle_not_there:Attack for the attack 'absent' cannot be loaded, install its"),
        ("number", "number failed in brusle_rivals:number: TypeError: 3 is not a callable object"),
    ],
)
def test_plugins_that_do_not_work(plugin, spec, message) -> None:
    with pytest.raises(InputError, match=message) as error:
        make(spec, 3, 40)
    assert "\n" not in str(error.value)
    answer = run("evaluate", "--attack", spec, "--goal", "untargeted", "--pixels", 3, "--limit", 1)
    assert answer.returncode == 2 and answer.stderr == f"error: {error.value}\n"


def test_a_run_is_read_without_the_plugin_that_made_it(plugin) -> None:
    budget = ("--goal", "untargeted", "--pixels", 6, "--queries", 10, "--limit", 12)
    done = run(
        "evaluate", "--attack", "mine?spread=2", "--attack", "brusle", *budget, "--out", "run"
    )
    assert done.returncode == 0 and "Mine spread=2" in done.stdout, done.stderr
    sys.modules.pop("brusle_rivals")
    (plugin / "imported").unlink()
    for command in (("status", "run"), ("report", "run"), ("compare", "run"), ("verify", "run")):
        assert run(*command).returncode == 0
    assert not (plugin / "imported").exists()
