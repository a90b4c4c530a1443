"""The examples of docs/extending.md: short, and as good citizens as what is built in."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from models import integer_model, own_labels, random_images

import brusle
from brusle.data import load as load_data

EXAMPLES = Path(__file__).parents[1] / "examples"
ENTRY_POINTS = """[brusle.attacks]
random-search = random_search:RandomSearch
salt-and-pepper = salt_and_pepper:make
[brusle.victims]
nearest-mean = nearest_mean:load
"""
EXAMPLE_LINES = [("random_search.py", 60), ("nearest_mean.py", 40), ("salt_and_pepper.py", 40)]


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Path:
    """A folder of packages that holds the examples as pip would install them."""
    for example in EXAMPLES.glob("*.py"):
        (tmp_path / example.name).write_text(example.read_text())
    info = tmp_path / "examples-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: examples\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return tmp_path


@pytest.mark.parametrize(("name", "most"), EXAMPLE_LINES)
def test_they_are_as_short_as_the_documentation_says(name, most) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < most


def test_the_documentation_shows_the_example_as_it_is() -> None:
    page = (EXAMPLES.parent / "docs" / "extending.md").read_text()
    assert (EXAMPLES / "salt_and_pepper.py").read_text() in page


def test_random_search_keeps_what_every_attack_promises(installed) -> None:
    """Budget, limit and ledger hold; batches and order do not show; more queries help."""
    from random_search import RandomSearch

    model = integer_model((3, 8, 8), 4)
    images = random_images(30, (3, 8, 8))
    labels = own_labels(model, images)
    attack = RandomSearch(3, 60)
    whole = attack(model.victim(), images, labels, batch_size=30)
    assert int(whole.ledger.total.sum()) == model.seen
    assert int(whole.queries.max()) <= 60 and int(whole.pixels.max()) <= 3
    assert whole.ledger.initial.sum() == 0
    assert 0 < whole.asr([5])[5] < whole.asr()
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    again = attack(model.victim(), images[order], labels[order], batch_size=7)
    assert torch.equal(again.queries, whole.queries[order])
    assert torch.equal(again.images, whole.images[order])
    fewest = brusle.minimise(attack, model.victim(), images, labels, queries=200)
    assert int(fewest.pixels.sum()) < int(whole.pixels.sum())


def test_salt_and_pepper_runs_under_the_ledger_like_any_attack(installed) -> None:
    from salt_and_pepper import make

    model = integer_model((3, 8, 8), 4)
    images = random_images(20, (3, 8, 8))
    labels = own_labels(model, images)
    for targets in (None, (labels + 1) % 4):
        before = model.seen
        result = make(30, 90)(model.victim(), images, labels, targets, batch_size=20)
        assert int(result.ledger.total.sum()) == model.seen - before
        assert int(result.queries.max()) <= 90 and int(result.pixels[result.success].max()) <= 30
        assert int(result.success.sum()) > 0
        again = make(30, 90)(
            model.victim(), images[:3], labels[:3], None if targets is None else targets[:3]
        )
        assert torch.equal(again.images, result.images[:3])


def test_an_external_attack_is_evaluated_resumed_and_verified_by_name(installed) -> None:
    command = [sys.executable, "-c", "from brusle.cli import main; main()"]
    options = ["--attack", "salt-and-pepper:grain=2", "--goal", "untargeted", "--pixels", "40"]
    options += ["--queries", "60", "--json", "--out", "run"]

    def run(*arguments) -> dict:
        done = subprocess.run(
            [*command, *arguments], cwd=installed, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    (few,) = run("evaluate", *options, "--limit", "10")["settings"]
    (more,) = run("evaluate", *options, "--limit", "20")["settings"]
    assert few["attack"] == more["attack"] == "salt-and-pepper grain=2"
    assert (few["summary"]["images"], more["summary"]["images"]) == (10, 20)
    checked = run("verify", "run", "--json")
    assert checked["sound"] == checked["rows"] == 20 and checked["held"] == checked["checked"] > 0


def test_both_are_known_by_name_on_the_command_line(installed) -> None:
    data = load_data("sample")
    means = np.stack([data.images[data.labels == c].mean(0).numpy() for c in range(10)])
    np.savez(installed / "means.npz", means=means, names=np.array(data.classes))
    command = [sys.executable, "-c", "from brusle.cli import main; main()", "evaluate", "--json"]
    options = ["--victim", "nearest-mean:means.npz?sharpness=9", "--attack", "random-search"]
    budget = ["--goal", "untargeted", "--pixels", "20", "--queries", "30", "--limit", "10"]
    done = subprocess.run(
        [*command, *options, *budget], cwd=installed, capture_output=True, text=True, check=True
    )
    (setting,) = json.loads(done.stdout)["settings"]
    assert setting["attack"] == "RandomSearch"
    assert setting["summary"]["images"] == 10
    listed = subprocess.run(
        [*command[:3], "list", "attacks"], cwd=installed, capture_output=True, text=True, check=True
    )
    assert "random-search" in listed.stdout
