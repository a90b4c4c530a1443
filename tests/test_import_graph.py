"""Imports go down and never round, and the documentation shows them as they are."""

import sys
from pathlib import Path

import import_graph
import pytest
from import_graph import When, circles, drawing, goes_up, imports_of, is_stale, written

IMPORTS = imports_of(import_graph.ROOT / "src" / "brusle")


def test_no_import_goes_up() -> None:
    assert [str(found) for found in IMPORTS if goes_up(found)] == []


def test_no_imports_go_round() -> None:
    assert circles(IMPORTS) == []


def test_the_drawing_is_not_stale() -> None:
    assert not is_stale(IMPORTS), "run python tools/import_graph.py --write"


PACKAGE = {
    "__init__.py": "if TYPE_CHECKING:\n    from brusle import cli\n",
    "rng.py": "import torch\n",
    "names.py": "from brusle import rng\nimport brusle.rng\n",
    "attacks/__init__.py": "from brusle.attacks.one import One\n",
    "attacks/one.py": "from ..rng import mix\nfrom . import two\nfrom .two import Two\n",
    "attacks/two.py": "def late():\n    from brusle.victims import load\n",
    "victims/__init__.py": "if typing.TYPE_CHECKING:\n    from brusle.attacks import x\n"
    "else:\n    from brusle.data import y\n",
    "data/__init__.py": "class A:\n    try:\n        from brusle import __version__\n"
    "    finally:\n        pass\n",
    "evaluation/__init__.py": "from brusle.evaluation.running import run\n",
    "evaluation/running/__init__.py": "from brusle.evaluation.storing.store import Store\n",
    "evaluation/storing/store.py": "import brusle.evaluation.running as r\nimport brusle.names\n",
    "cli.py": "from brusle import evaluation\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small brusle with mistakes in it."""
    for name, text in PACKAGE.items():
        path = tmp_path / "brusle" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "brusle"


def test_every_way_to_import_is_found(package: Path) -> None:
    found = {(str(one).replace("brusle.", ""), one.when) for one in imports_of(package)}
    assert found == {
        ("brusle -> cli", When.NEVER),
        ("names -> rng", When.LOADED),
        ("attacks -> attacks.one", When.LOADED),
        ("attacks.one -> rng", When.LOADED),
        ("attacks.one -> attacks.two", When.LOADED),
        ("attacks.two -> victims", When.CALLED),
        ("victims -> attacks", When.NEVER),
        ("victims -> data", When.LOADED),
        ("data -> brusle", When.LOADED),
        ("evaluation -> evaluation.running", When.LOADED),
        ("evaluation.running -> evaluation.storing.store", When.LOADED),
        ("evaluation.storing.store -> evaluation.running", When.LOADED),
        ("evaluation.storing.store -> names", When.LOADED),
        ("cli -> evaluation", When.LOADED),
    }


def test_what_goes_up_and_what_goes_round(package: Path) -> None:
    imports = imports_of(package)
    assert {str(one).replace("brusle.", "") for one in imports if goes_up(one)} == {
        "attacks.two -> victims",  # beside, and in a function
        "victims -> attacks",  # beside, and for type checkers only
        "data -> brusle",
        "evaluation.storing.store -> evaluation.running",
    }
    assert circles(imports) == [
        ("brusle.evaluation.running", "brusle.evaluation.storing.store"),
    ]


def test_the_drawing_has_marks_on_the_right_unless_something_is_wrong(package: Path) -> None:
    assert drawing(imports_of(package)).splitlines()[:-2] == [
        "                        1  2  3  4  5  6  7  8  9",
        "brusle               1  .  t",
        "cli                  2     .  x",
        "evaluation           3        .  x",
        "evaluation.running   4           .  x",
        "evaluation.storing   5           x  .           x",
        "victims              6                 .  x  t",
        "data                 7  x                 .",
        "attacks              8                 o     .  x",
        "core                 9                          .",
    ]


def test_a_page_keeps_what_is_around_the_drawing() -> None:
    page = f"above\n{import_graph.BEGIN}\nold\n{import_graph.END}\nbelow\n"
    new = written(page, "picture")
    assert new.startswith("above\n") and new.endswith("\nbelow\n") and "old" not in new
    assert "```text\npicture\n```" in new and written(new, "picture") == new
    with pytest.raises(SystemExit, match="has no lines"):
        written("nothing", "picture")


@pytest.mark.parametrize("stale", [False, True])
def test_the_command_fails_on_what_is_wrong(package, tmp_path, stale, monkeypatch, capsys) -> None:
    page = tmp_path / "docs" / "import-graph.md"
    page.parent.mkdir()
    page.write_text(f"{import_graph.BEGIN}\n{import_graph.END}\n")
    (tmp_path / "src").mkdir()
    package.rename(tmp_path / "src" / "brusle")
    monkeypatch.setattr(import_graph, "ROOT", tmp_path)
    monkeypatch.setattr(import_graph, "PAGE", page)

    def command(*options: str) -> object:
        monkeypatch.setattr(sys, "argv", ["import_graph.py", *options])
        with pytest.raises(SystemExit) as end:
            import_graph.main()
        return end.value.code

    assert command("--write") == 1
    if stale:
        page.write_text(page.read_text().replace("core", "kernel"))
    assert command("--check") == 1
    said = capsys.readouterr().err.splitlines()[5:]
    assert (
        said[0] == "brusle.attacks.two -> brusle.victims (line 2) goes up from attacks to victims"
    )
    assert said[4] == "circle: brusle.evaluation.running, brusle.evaluation.storing.store"
    assert [line for line in said[5:] if "is stale: run python" in line] == said[5:]
    assert len(said[5:]) == stale
