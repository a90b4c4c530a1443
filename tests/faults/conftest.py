"""A run folder of the bundled victim, and copies of it that tests may damage."""

import shutil
from pathlib import Path

import pytest

import brusle
from brusle.attacks import BruSLe, SparseRS


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """Three settings with successes, failures and images that are not attacked."""
    folder = tmp_path_factory.mktemp("made") / "run"
    runs = {"untargeted": [BruSLe(20, 25), SparseRS(20, 12)], "targeted": [SparseRS(3, 8)]}
    brusle.evaluate(attacks=runs, out=folder, limit=12, batch_size=12)
    return folder


@pytest.fixture
def folder(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))
