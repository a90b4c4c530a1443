"""Benchmarks write the figures as the documentation has them."""

import argparse
import subprocess
import sys
from importlib import import_module

import pytest
from blocks import ROOT
from figures import Figures, read_all

from brusle.evaluation.statistics import Rate

FILES = read_all()


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(sys, "argv", ["benchmarks/made_up.py", "--data", "a b"])


def test_a_file_says_how_it_came_about(tmp_path) -> None:
    write = import_module("written").write
    path = tmp_path / "x.json"
    write(None)
    write(path, {"a": [["1"]]}, {"v": "1", "w": "2"})
    write(path, {"b": [["2"]]}, {"v": "3"}, keep=True)
    found = Figures.read(path)
    assert found.command == "python benchmarks/made_up.py --data 'a b'"
    assert "torch 2." in found.measured and "brusle 0." in found.measured
    assert found.tables == {"a": [["1"]], "b": [["2"]]} and found.values == {"v": "3", "w": "2"}
    write(path, values={"v": "4"})
    assert Figures.read(path).tables == {}


def test_tables_grow_cell_by_cell() -> None:
    put = import_module("written").put
    table: list[list[str]] = []
    put(table, ["4", "A"], "x", "1")
    put(table, ["4", "B"], "x", "2")
    put(table, ["4", "A"], "y", "3")
    put(table, ["4", "A"], "x", "5")
    assert table == [["", "", "x", "y"], ["4", "A", "5", "3"], ["4", "B", "2", ""]]


def test_the_comparison_makes_tables_of_the_same_form(tmp_path) -> None:
    comparison = import_module("comparison")
    store = comparison.Store(tmp_path / "store.json", 100)
    for line in comparison.LINES:
        for pixels in comparison.BUDGETS[line.goal]:
            for mark in line.marks:
                store.put(line, pixels, mark, Rate(pixels, 45 if line.share < 1 else 90))
    made, page = comparison.figures(store), FILES["comparison"].tables
    assert made.keys() == page.keys()
    for name, rows in page.items():
        assert made[name][0] == rows[0], name
        titles = [
            [row[0].partition("@250")[0] for row in table[1:]] for table in (made[name], rows)
        ]
        assert titles[0] == titles[1], name
        empty = [[cell == "" for row in table for cell in row] for table in (made[name], rows)]
        assert empty[0] == empty[1], name
    assert made["targeted"][1][1] == "11"
    assert any(row[0] == "BayesOpt (45 pairs; @250: 22, 44, 89)" for row in made["targeted"])
    assert comparison.sentence(["1", "2", "3"]) == "1, 2 and 3"


def titled(row: list[str]) -> tuple[str, list[bool]]:
    """The title of a row without its numbers, and which cells it has."""
    return row[0].partition("@250")[0], [cell == "" for cell in row]


def test_queries_complete_their_tables_run_by_run(tmp_path) -> None:
    queries, path = import_module("queries"), tmp_path / "q.json"

    def run(victim: str, data: str, goal: str, pixels: int) -> None:
        lines = [
            {
                "attack": attack,
                "pixels": pixels,
                "rate": {500: 0.25},
                "margin": {200: -9.0, 500: -1.234},
                **({} if attack == "brusle" else {"ratio": (0.5, 0.4, 0.6)}),
            }
            for attack in ("brusle", "sparse-rs", "pixel-bandit")
        ]
        args = argparse.Namespace(figures=path, victim=victim, data=data, goal=goal, queries=500)
        queries.figures(args, lines)

    run("zoo:cifar10-resnet20", "sample", "targeted", 10)
    run("zoo:cifar10-resnet20", "sample", "untargeted", 3)
    run("zoo:cifar10-vit", "sample", "targeted", 20)
    run("zoo:cifar10-resnet20-linf", "sample", "untargeted", 8)
    run("efficientnet-lite:0", "imagenet:photos", "untargeted", 50)
    run("efficientnet-lite:0", "imagenet:photos", "targeted", 500)
    found = Figures.read(path)
    assert found.tables == {
        "ratios": [
            ["", "10 px", "3 px"],
            ["targeted", "0.50 [0.40, 0.60]", ""],
            ["untargeted", "", "0.50 [0.40, 0.60]"],
        ],
        "robust": [
            ["", "", "l_inf"],
            ["8", "BruSLe", "75"],
            ["8", "Sparse-RS", "75"],
            ["8", "PixelBandit", "75"],
        ],
        "margins": [
            ["", "margin @500", "success"],
            ["BruSLe", "-1.23", "25 %"],
            ["Sparse-RS", "-1.23", "25 %"],
            ["PixelBandit", "-1.23", "25 %"],
        ],
    }
    assert found.values.keys() == {
        "transformer-20",
        "photographs-untargeted-50",
        "photographs-targeted-500",
    }
    assert FILES["queries"].values.keys() >= {"transformer-20", "photographs-untargeted-50"}


def test_lists_make_tables_of_the_same_form(tmp_path, monkeypatch) -> None:
    partial = import_module("partial")

    def rate(bench: object, *_: object, **__: object) -> Rate:
        return Rate(6, 10) if "efficientnet" in bench.victim else Rate(27, 54)

    monkeypatch.setattr(partial.Bench, "rate", rate)
    asked = argparse.Namespace(
        images=60, queries=300, quick=False, out=tmp_path / "out.json", photographs="photos"
    )
    made = {title: measure() for title, measure in partial.sections(asked)}
    page = FILES["partial"].tables
    for name, rows in page.items():
        assert made[name][0] == rows[0], name
        assert [row[:2] if name in ("attacks", "losses") else row[:1] for row in made[name]] == [
            row[:2] if name in ("attacks", "losses") else row[:1] for row in rows
        ], name
        assert [len(row) for row in made[name]] == [len(row) for row in rows], name
    assert made["attacks"][1][2] == "50 (37-63)" and made["photographs"][1][1] == "6 of 10"


@pytest.mark.docs
def test_a_column_of_the_readme_is_measured_again(tmp_path) -> None:
    """What is found within 50 queries does not depend on the limit."""
    path = tmp_path / "effectiveness.json"
    program = [sys.executable, str(ROOT / "benchmarks" / "effectiveness.py")]
    subprocess.run([*program, "--queries", "50", "--figures", str(path)], check=True)
    measured = Figures.read(path).tables["rates"]
    page = FILES["effectiveness"].tables["rates"]
    at = page[0].index("@50")
    assert [row[:3] for row in measured] == [[*row[:2], row[at]] for row in page]


@pytest.mark.docs
def test_the_error_rates_of_gates_are_those_of_the_page() -> None:
    gates, page = import_module("gates"), FILES["gates"].tables
    assert gates.verdicts_table() == page["verdicts"]
    assert gates.errors_table() == page["errors"]
    assert gates.models_table() == page["models"]
