"""Every way to an evaluation leaves the same files in its folder."""

import json
from pathlib import Path

import pytest
from entry import run

import brusle
from brusle.attacks import BruSLe

VARIES = ("results.sqlite", "results.lock")  # times, and the order of pages
VARIES_IN_JSON = ("began", "plan", "seconds", "provenance")
PLAN = {"limit": 4, "queries": 40, "pixels": 20, "attacks": "brusle"}


def contents(folder: Path) -> dict[str, object]:
    """What every file holds, by its name, as far as it does not differ from run to run."""
    found: dict[str, object] = {
        str(path.relative_to(folder)): None if path.name in VARIES else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("results.sqlite-")  # of an open database
    }
    summary = json.loads((folder / "run.json").read_text())
    found["run.json"] = {k: v for k, v in summary.items() if k not in VARIES_IN_JSON}
    return found


@pytest.fixture(scope="module")
def by_command(tmp_path_factory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("command") / "run"
    options = ("--limit", 4, "--queries", 40, "--pixels", 20, "--attack", "brusle")
    answer = run("evaluate", *options, "--out", folder)
    assert answer.returncode == 0, answer.stderr
    return contents(folder)


def test_the_command_leaves_tables_images_and_pictures(by_command) -> None:
    assert {name.split("/")[0] for name in by_command} == {
        "adversarial", "curve.png", "gallery.png", "pairs.json", "results.lock",
        "results.sqlite", "rows.csv", "rows.json", "run.json",
    }  # fmt: skip


def test_evaluate_in_python_leaves_the_same(by_command, tmp_path) -> None:
    brusle.evaluate(attacks=BruSLe(20, 40), limit=4, out=tmp_path)
    assert contents(tmp_path) == by_command


def test_a_plan_in_python_leaves_the_same(by_command, tmp_path) -> None:
    brusle.evaluate(brusle.Plan.of(PLAN), out=tmp_path)
    assert contents(tmp_path) == by_command


def test_evaluate_by_its_full_name_leaves_the_same(by_command, tmp_path) -> None:
    brusle.evaluation.evaluate(attacks=BruSLe(20, 40), limit=4, out=tmp_path)
    assert contents(tmp_path) == by_command
