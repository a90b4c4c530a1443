"""Victims from the user's own code on the command line: their names, and what retraining does."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from entry import run
from installed import install
from torch import nn

from brusle.evaluation import Run
from brusle.victims import wrap
from brusle.victims.fingerprints import fingerprint

MODULE = """
import torch
from torch import nn
from brusle.victims import wrap

def make():
    net = nn.Sequential(nn.Flatten(), nn.Linear(108, 4))
    net.load_state_dict(torch.load("net.pt", weights_only=True))
    return wrap(net, output="logits")
"""
PLUGIN = """
from brusle.victims import wrap

def invert(victim, strength):
    return wrap(lambda x: victim(x) * strength, output="logits", name="inverted")

def nothing(victim):
    return None
"""
SMALL = ("--pixels", "8", "--queries", "60", "--attack", "brusle", "--goal", "untargeted")
REQUEST = ("evaluate", "--victim", "python:retrained:make", "--data", "npz:x.npz", *SMALL)


def train(seed: int) -> nn.Module:
    """Write other weights to the same file."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(108, 4))
    torch.save(net.state_dict(), "net.pt")
    return net


def draw(seed: int, net: nn.Module) -> None:
    """Write other images to the same file."""
    levels = np.random.default_rng(seed).integers(0, 256, (6, 3, 6, 6), dtype=np.uint8)
    labels = net(torch.from_numpy(levels).float() / 255).argmax(1)
    np.savez("x.npz", images=levels, labels=labels.numpy())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder: a factory, weights, and images."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "retrained.py").write_text(MODULE)
    points = {"invert": "invert", "nothing": "nothing"}
    install(tmp_path, "others", PLUGIN, defences=points)
    monkeypatch.syspath_prepend(tmp_path)
    draw(0, train(0))
    yield tmp_path
    for name in ("retrained", "others"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "defence", [None, "round:3", "rnd:0.0123456789", "invert:2", "invert?strength=2"]
)
def test_verify_and_report_know_a_factory_by_its_name(place: Path, defence: str | None) -> None:
    behind = () if defence is None else ("--defence", defence)
    name = "python:retrained:make" + (f" + {defence}" if defence else "")
    done = run(*REQUEST, *behind, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert Run.open("run").victim == name
    again = run("verify", "run", "--victim", "python:retrained:make", *behind, "--json")
    assert again.returncode == 0, again.stderr
    said = json.loads(again.stdout)
    assert said["victim"] == name
    assert said["checked"] > 0
    report = run("report", "run", "--md")
    assert report.stdout.startswith(f"# {name} on npz:x.npz\n"), report.stderr


@pytest.mark.parametrize(
    ("defence", "said"),
    [
        ("nothing", "nothing returned something unusable: NoneType is no victim"),
        ("nothing:1", "'nothing:1' failed in others:nothing: TypeError: nothing() takes 1"),
        ("invert:a", "'invert:a': 'a' is no number"),
        ("invert?strong=2", "failed in others:invert: TypeError: invert() got an unexpected"),
        ("invrt:2", "unknown defence 'invrt:2': did you mean 'invert'?"),
    ],
)
def test_defences_of_plugins_that_do_not_work(place: Path, defence: str, said: str) -> None:
    answer = run(*REQUEST, "--defence", defence)
    assert answer.returncode in (2, 3) and answer.stderr.count("\n") == 1
    assert said in answer.stderr


def folders() -> set[str]:
    return {path.name for path in Path("runs").iterdir()}


def test_retrained_weights_get_a_folder_of_their_own(place: Path) -> None:
    first = run(*REQUEST)
    assert first.returncode == 0, first.stderr
    (name,) = folders()
    weights = fingerprint(wrap(train(0), output="logits"))
    assert re.fullmatch(f"python-retrained-make-[0-9a-f]{{12}}-{weights[:8]}", name)
    again = run(*REQUEST)
    assert "6 attacks were stored already and not run again" in again.stdout
    assert folders() == {name}

    train(1)  # in place, and the same command
    other = run(*REQUEST)
    assert other.returncode == 0, other.stderr
    assert "stored already" not in other.stdout
    assert len(folders()) == 2
    assert len({path.rsplit("-", 1)[0] for path in folders()}) == 1  # the same but for the weights


def test_a_folder_that_was_asked_for_is_not_mixed(place: Path) -> None:
    assert run(*REQUEST, "--out", "mine").returncode == 0
    train(1)
    refused = run(*REQUEST, "--out", "mine")
    assert refused.returncode == 2
    assert re.search(
        "error: the run folder holds results of weights .*: choose another --out", refused.stderr
    )
    assert refused.stderr.count("\n") == 1


def test_other_images_or_a_version_of_other_results_get_a_folder_of_their_own(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*REQUEST).returncode == 0
    draw(1, train(0))  # in place
    assert run(*REQUEST).returncode == 0
    assert len(folders()) == 2
    monkeypatch.setattr("brusle.evaluation.running.plan.RESULTS", 99)
    answer = run(*REQUEST)
    assert answer.returncode == 0, answer.stderr
    assert len(folders()) == 3


def test_the_victim_is_opened_once(place: Path) -> None:
    (place / "retrained.py").write_text(
        MODULE + "    \nplain = make\ncalls = []\n"
        "def make():\n    calls.append(1)\n    return plain()\n"
    )
    sys.modules.pop("retrained", None)
    assert run(*REQUEST).returncode == 0
    assert len(sys.modules["retrained"].calls) == 1
