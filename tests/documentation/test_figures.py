"""Numbers on pages are those of the files that benchmarks write."""

import re
import shlex
import sys

import click
import figures
import pytest
from figures import Figures, filled, markdown, named, read_all, stale

from brusle.cli import cli

FILES = read_all()
SHOWN = {name for page in figures.pages() for name in named(page.read_text(encoding="utf-8"))}


def test_no_page_is_stale() -> None:
    assert not stale(), "run python tools/figures.py --write"


def test_every_number_of_the_files_is_on_a_page() -> None:
    held = {f"{file}.{name}" for file, one in FILES.items() for name in one.tables | one.values}
    assert held == SHOWN and len(held) > 25


def test_no_number_begins_a_line() -> None:
    """Markdown would take the whole line for HTML."""
    for page in figures.pages():
        assert not re.search(r"^\s*<!--=", page.read_text(encoding="utf-8"), re.MULTILINE), page


@pytest.mark.parametrize("file", FILES)
def test_every_file_says_which_command_writes_it(file) -> None:
    """A benchmark with the option for it, or a command of brusle."""
    program, second = shlex.split(FILES[file].command.partition(",")[0])[:2]
    assert FILES[file].measured
    if program == "brusle":
        assert second in cli.list_commands(click.Context(cli))
        return
    source = (figures.ROOT / second).read_text(encoding="utf-8")
    assert program == "python" and "written.add_option(parser)" in source
    assert "written.write(" in source


ONE = Figures(
    "python benchmarks/x.py",
    "today",
    {"rates": [["", "a"], ["b", "é 1"]]},
    {"mean": "2.5"},
)
PAGE = "It is <!--=x.mean-->2<!--/-->.\n\n<!-- figures: x.rates -->\nold\n<!-- end -->\nbelow\n"


def test_files_keep_what_they_are_given(tmp_path) -> None:
    path = tmp_path / "new" / "x.json"
    ONE.write(path)
    assert Figures.read(path) == ONE
    assert '   ["b", "é 1"]\n' in path.read_text(encoding="utf-8")
    Figures("a", "b").write(path)
    assert Figures.read(path) == Figures("a", "b")


def test_pages_get_tables_and_numbers_and_keep_the_rest() -> None:
    assert markdown(ONE.tables["rates"]) == "| | a |\n|---|---|\n| b | é 1 |\n"
    new = filled(PAGE, {"x": ONE})
    assert new == (
        "It is <!--=x.mean-->2.5<!--/-->.\n\n<!-- figures: x.rates -->\n"
        "| | a |\n|---|---|\n| b | é 1 |\n<!-- end -->\nbelow\n"
    )
    assert filled(new, {"x": ONE}) == new and named(new) == {"x.mean", "x.rates"}
    with pytest.raises(KeyError, match="y"):
        filled(PAGE.replace("x.mean", "y.mean"), {"x": ONE})


def test_the_command_finds_what_is_stale_and_repairs_it(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    page.write_text(PAGE)
    (tmp_path / "README.md").write_text("nothing\n")
    ONE.write(tmp_path / "figures" / "x.json")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures")

    def command(*options: str) -> object:
        monkeypatch.setattr(sys, "argv", ["figures.py", *options])
        with pytest.raises(SystemExit) as end:
            figures.main()
        return end.value.code

    assert command("--check") == 1 and command() == 0
    said = capsys.readouterr().err.splitlines()
    assert said == ["page.md is stale: run python tools/figures.py --write"] * 2
    assert command("--write") == 0 and command("--check") == 0
    assert page.read_text() == filled(PAGE, {"x": ONE}) and not capsys.readouterr().err
