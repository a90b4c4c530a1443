"""``brusle compare`` and ``brusle report`` as a script sees them."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from entry import run
from models import integer_model, own_labels, random_images

import brusle
from brusle.attacks import BruSLe, SparseRS
from brusle.evaluation.store import Store
from brusle.report.gallery import run_examples

SHAPE = (3, 8, 8)
IMAGES = random_images(14, SHAPE)
LABELS = own_labels(integer_model(SHAPE, 4, 0), IMAGES)  # as the first victim says


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Two attacks on a victim, and one of them on another with a lower limit."""
    folder = tmp_path_factory.mktemp("runs")
    plans = {"a": ([BruSLe(3, 30), SparseRS(3, 30)], 0), "b": ([BruSLe(3, 20)], 5)}
    for name, (attacks, seed) in plans.items():
        model = integer_model(SHAPE, 4, seed)
        brusle.evaluate(model.victim(), (IMAGES, LABELS), attacks, out=folder / name, seed=(0, 1))
    return [folder / name for name in plans]


def rows(folder: Path) -> list[dict]:
    return json.loads((folder / "rows.json").read_text())


def test_attacks_of_a_run_are_compared_on_their_rows(runs) -> None:
    answer = run("compare", runs[0], "--json", "--queries", 10)
    assert answer.returncode == 0, answer.stderr
    (section,) = json.loads(answer.stdout)
    assert len(section["lines"]) == 4  # two goals, two seeds
    for line in section["lines"]:
        hits = {"BruSLe": 0, "SparseRS": 0}
        seed = 1 if "seed 1" in line["other"] else 0
        for row in rows(runs[0]):
            if (row["goal"], row["seed"]) == (line["goal"], seed):
                hits[row["attack"]] += row["status"] == "success" and row["queries"] <= 10
        assert line["baseline_asr"]["hits"] == hits["BruSLe"]
        assert line["other_asr"]["hits"] == hits["SparseRS"]
        difference = (hits["SparseRS"] - hits["BruSLe"]) / 14
        assert line["difference"]["value"] == pytest.approx(difference)
        assert line["difference"]["low"] <= difference <= line["difference"]["high"]


def test_the_table_fits_80_columns(runs) -> None:
    answer = run("compare", *runs, "--baseline", "sparse-rs")
    assert "untargeted" in answer.stdout and "[95 % CI]" in answer.stdout
    assert "note: the query limits differ: 30 and 20, compared at 20" in answer.stdout
    assert "no match: SparseRS untargeted, 3 px: only in" in answer.stdout.replace("\n", " ")
    assert "a: attacks against SparseRS" in answer.stdout.replace("\n", "")
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert "…" not in answer.stdout


def test_nothing_to_compare_is_said(runs, tmp_path) -> None:
    answer = run("compare", runs[1])
    assert answer.returncode == 2
    assert "fewer than two attacks: give another run to compare it with" in answer.stderr
    answer = run("compare", runs[0], "--queries", 31)
    assert answer.returncode == 2
    assert answer.stdout.count("not compared: ") == 4
    for command in ("compare", "report"):
        answer = run(command, tmp_path)
        assert answer.returncode == 2 and "holds no run" in answer.stderr


def test_report_is_one_file(runs, tmp_path) -> None:
    answer = run("report", runs[0], "--out", tmp_path / "new" / "page.html")
    assert answer.returncode == 0, answer.stderr
    text = (tmp_path / "new" / "page.html").read_text()
    assert text.startswith("<!doctype html>") and "data:image" not in text
    assert "were arrays, which a run folder does not keep" in text and "--data npz:FILE" in text
    assert list((tmp_path / "new").iterdir()) == [tmp_path / "new" / "page.html"]


def test_report_takes_the_originals_from_data(runs, tmp_path) -> None:
    np.savez(tmp_path / "images.npz", images=IMAGES.numpy(), labels=LABELS.numpy())
    data = f"npz:{tmp_path / 'images.npz'}"
    answer = run("report", runs[0], "--out", tmp_path / "page.html", "--data", data)
    assert answer.returncode == 0, answer.stderr
    fooled = Counter(
        (row["attack"], row["goal"])
        for row in rows(runs[0])
        if row["status"] == "success" and row["seed"] == 0
    )
    shown = sum(min(6, count) for count in fooled.values())  # 24 examples, 6 of each setting
    assert (tmp_path / "page.html").read_text().count("data:image/png") == 3 * shown > 0
    torch.manual_seed(0)
    np.savez(tmp_path / "images.npz", images=torch.rand(14, *SHAPE).numpy(), labels=LABELS.numpy())
    answer = run("report", runs[0], "--out", tmp_path / "page.html", "--data", data)
    assert answer.returncode == 0, answer.stderr
    assert "is not the one that was chosen" in (tmp_path / "page.html").read_text()


def test_examples_are_of_different_images(tmp_path) -> None:
    model = integer_model(SHAPE, 4)
    data = (IMAGES[:4], LABELS[:4])
    found = brusle.evaluate(model.victim(), data, [BruSLe(8, 60)], "targeted", tmp_path, targets=2)
    fooled = {row["image"] for row in rows(tmp_path) if row["status"] == "success"}
    assert len(fooled) == 4 < found.summaries()[0].asr.hits
    names = [example.name for example in run_examples(found, 5)]
    assert set(names[:4]) == fooled and len(names) == 5


def test_report_as_json_and_markdown_writes_no_file(runs) -> None:
    answer = run("report", runs[0], "--json")
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    known = json.loads((runs[0] / "run.json").read_text())
    assert [part["summary"] for part in told["settings"]] == [
        part["summary"] for part in known["settings"]
    ]
    answer = run("report", runs[0], "--md")
    assert answer.stdout.startswith("# counting on arrays\n")
    assert "\n| SparseRS, seed 1 | targeted | " in answer.stdout
    assert not (runs[0] / "report.html").exists()
    assert run("report", runs[0], "--md", "--json").returncode == 2


def test_report_of_a_run_that_writes(tmp_path) -> None:
    model = integer_model(SHAPE, 4)
    brusle.evaluate(model.victim(), (IMAGES, LABELS), [BruSLe(3, 5)], out=tmp_path)
    with Store.write(tmp_path):
        assert run("report", tmp_path).returncode == 0
        assert "A run is writing at this moment" in (tmp_path / "report.html").read_text()
    run("report", tmp_path)
    assert "A run is writing at this moment" not in (tmp_path / "report.html").read_text()


def test_a_place_that_cannot_be_written_is_named(runs, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    answer = run("report", runs[0], "--out", tmp_path / "file" / "page.html")
    assert answer.returncode == 2
    assert "choose another --out" in answer.stderr and answer.stderr.count("\n") == 1
