"""``brusle compare`` and ``brusle report`` as a script sees them."""

import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from entry import run
from models import integer_model, own_labels, random_images
from rich.console import Console

import brusle
from brusle import Run
from brusle.attacks import BruSLe, Minimal, SparseRS
from brusle.evaluation.storing.store import Store
from brusle.report.gallery import run_examples
from brusle.report.tables import summary_table

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
    assert len(section["lines"]) == 2  # two goals, each with two seeds
    total = 0
    for line in section["lines"]:
        hits = {"BruSLe": 0, "SparseRS": 0}
        for row in rows(runs[0]):
            if row["goal"] == line["goal"]:
                hits[row["attack"]] += row["status"] == "success" and row["queries"] <= 10
        assert line["seeds"] == [0, 1] and line["pairs"] == 28
        assert line["baseline_asr"]["hits"] == hits["BruSLe"]
        assert line["other_asr"]["hits"] == hits["SparseRS"]
        # no image was wrong from the start, and none failed
        assert line["other_robust_accuracy"]["hits"] == 28 - hits["SparseRS"]
        assert line["robust_difference"]["value"] == pytest.approx(-line["difference"]["value"])
        difference = (hits["SparseRS"] - hits["BruSLe"]) / 28
        assert line["over_seeds"]["difference"]["mean"] == pytest.approx(difference)
        total += hits["SparseRS"] - hits["BruSLe"]
        assert line["difference"]["value"] == pytest.approx(difference)
        assert line["difference"]["low"] <= difference <= line["difference"]["high"]
    (verdict,) = section["verdicts"]
    assert verdict["found"]["difference"]["value"] == pytest.approx(total / 56)


def test_the_table_fits_80_columns(runs) -> None:
    answer = run("compare", *runs, "--baseline", "sparse-rs")
    assert "over seeds" in answer.stdout and "robust %" in answer.stdout
    told = json.loads(run("compare", *runs, "--baseline", "sparse-rs", "--json").stdout)
    verdicts = [verdict["text"] for section in told for verdict in section["verdicts"]]
    assert verdicts and all(text in " ".join(answer.stdout.split()) for text in verdicts)
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
    assert answer.stdout.count("not compared: ") == 2
    for command in ("compare", "report"):
        answer = run(command, tmp_path)
        assert answer.returncode == 2 and "holds no run" in answer.stderr


def test_report_is_one_file(runs, tmp_path) -> None:
    answer = run("report", runs[0], "--out", tmp_path / "new" / "page.html")
    assert answer.returncode == 0, answer.stderr
    text = (tmp_path / "new" / "page.html").read_text()
    assert text.startswith("<!doctype html>") and 'src="data:image' not in text
    assert "were arrays, which a run folder does not keep" in text and "--data npz:FILE" in text
    assert list((tmp_path / "new").iterdir()) == [tmp_path / "new" / "page.html"]


@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_file_gets_the_format_of_its_name(runs, tmp_path, command) -> None:
    for name, begins in {"a.HTML": "<!doctype html>", "a.md": "# ", "a.json": None}.items():
        answer = run(command, runs[0], "--out", tmp_path / name)
        assert answer.returncode == 0, answer.stderr
        text = (tmp_path / name).read_text()
        if begins is None:
            json.loads(text)
        else:
            assert text.startswith(begins)
    printed = run(command, runs[0], "--json").stdout
    assert json.loads(printed) == json.loads((tmp_path / "a.json").read_text())
    for name in ("a.pdf", "a"):
        answer = run(command, runs[0], "--out", tmp_path / name)
        assert answer.returncode == 2 and answer.stderr.count("\n") == 1
        assert "its name: name it .html, .htm, .md, .json" in answer.stderr
        assert not (tmp_path / name).exists()


def test_a_comparison_that_cannot_be_written(runs, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    answer = run("compare", runs[0], "--out", tmp_path / "file" / "page.html")
    assert answer.returncode == 2 and "choose another place" in answer.stderr


@pytest.fixture(scope="module")
def searches(tmp_path_factory) -> Path:
    """Two searches for the fewest pixels, and an attack with a budget."""
    folder = tmp_path_factory.mktemp("runs") / "searches"
    attacks = [Minimal(BruSLe(6, 20), 60), Minimal(SparseRS(6, 20), 60), BruSLe(3, 20)]
    model = integer_model(SHAPE, 4)
    brusle.evaluate(model.victim(), (IMAGES, LABELS), attacks, "untargeted", folder)
    return folder


def test_searches_for_the_fewest_pixels_are_told_apart(searches, tmp_path) -> None:
    needs = {
        attack: [
            row["pixels"] if row["status"] == "success" else 7
            for row in rows(searches)
            if row["attack"] == attack
        ]
        for attack in ("minimal BruSLe", "minimal SparseRS")
    }
    base, other = (sum(some) / 14 for some in needs.values())
    (section,) = json.loads(run("compare", searches, "--json").stdout)
    (line,) = section["lines"]  # the attack with a budget has no counterpart
    assert line["pixels_needed"]["difference"]["value"] == pytest.approx(other - base)
    assert line["pixels_needed"]["ratio"]["value"] == pytest.approx(other / base)
    assert line["pixels_needed"]["baseline_median"] == sorted(needs["minimal BruSLe"])[6]
    answer = run("compare", searches)
    assert "pixels, mean" in answer.stdout and max(map(len, answer.stdout.splitlines())) <= 80
    answer = run("report", searches, "--md")
    assert "## Pixels needed" in answer.stdout and "minimal" not in answer.stdout.split("## ")[1]
    told = json.loads((searches / "run.json").read_text())
    assert [part["minimal"] for part in told["settings"]] == [True, True, False]
    assert not any("not-converged" in part["flags"] for part in told["settings"][:2])


def test_the_terminal_shows_both_kinds_within_80_columns(searches) -> None:
    console = Console(width=80, file=io.StringIO())
    console.print(summary_table(Run.open(searches)))
    shown = console.file.getvalue()
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    budget, fewest = shown.split(": the fewest pixels")
    assert "queries" in budget and "minimal" not in budget
    (line,) = [line for line in fewest.splitlines() if line.startswith(" BruSLe")]
    needs = sorted(
        row["pixels"] if row["status"] == "success" else 99
        for row in rows(searches)
        if row["attack"] == "minimal BruSLe"
    )
    # of 14, the fewest pixels for a quarter are those of the 4th, for half of the 7th
    assert line.split()[2:4] == [str(needs[3]), str(needs[6])]


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
    assert (tmp_path / "page.html").read_text().count('src="data:image/png') == 3 * shown > 0
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
    assert "choose another place" in answer.stderr and answer.stderr.count("\n") == 1
