"""A run folder of the bundled victim, and copies of it that tests may damage."""

import shutil
from pathlib import Path

import pytest
from rehearsing import evaluated, service

import brusle
from brusle.attacks import BruSLe, SparseRS
from brusle.data import source
from brusle.evaluation import Manifest
from brusle.evaluation.running.pairs import drawn


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """Three settings with successes, failures and images that are not attacked."""
    folder = tmp_path_factory.mktemp("made") / "run"
    runs = {"untargeted": [BruSLe(20, 25), SparseRS(20, 12)], "targeted": [SparseRS(3, 8)]}
    sample, victim = source("sample"), brusle.load_victim("zoo:cifar10-resnet20", "cpu")
    whole = sample.take(range(len(sample)))
    wrong = (victim(whole.images).argmax(1) != whole.labels).nonzero()[:, 0].tolist()
    rows = sorted({*sample.order()[:11], wrong[0]})
    entries = [e for part, _ in drawn(sample, rows, 1, 0, range(10)) for e in part]
    pairs = Manifest("sample", None, 0, 10, 0, tuple(entries))
    brusle.evaluate(attacks=runs, out=folder, pairs=pairs, batch_size=12)
    return folder


@pytest.fixture
def folder(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.fixture(scope="session")
def quiet(tmp_path_factory) -> Path:
    """A folder with the undisturbed evaluation of a service, ``run``, and the service's books."""
    folder = tmp_path_factory.mktemp("quiet")
    with service(folder / "books") as ready:
        said = evaluated(ready.victim, folder / "run")
    assert said.returncode == 0, said.stderr
    return folder
