"""A run in which everybody is called something evil, through every command.

Image names and data come from a plugin, class names and errors from a victim, the name of an
attack from Python: a name is text, wherever it is shown, and a file name wherever it is written.
"""

import csv
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from entry import run as command
from installed import install
from pages import Reader
from PIL import Image

import brusle
from brusle.attacks import BruSLe, SparseRS
from brusle.data import Dataset, Source
from brusle.errors import InputError
from brusle.evaluation import Run
from brusle.evaluation.storing.export import export_images
from brusle.text import shown

pytestmark = pytest.mark.slow

MARKUP = (
    "[/bold][red]x[/red] $\\frac{ $x_ <script>alert(1)</script> <img src=x onerror=alert(2)> "
    "\"'`|*_#\\ \x1b[31m\x1b]0;owned\x07 \r\n- \u202e \x9b31m 💥 ]["
)
NAMES = [
    "../../escaped", "/absolute/escaped", "a\\b", "nul\0l", "x" * 300, "💥" * 90, "A", "a", "..",
    "", "con", "é", "e\u0301", "=cmd|'/C calc'!A0", "+1", "-1+1", "@SUM(A1)", "\t=1", "'x", MARKUP,
]  # fmt: skip
PLUGIN = """
import torch
from brusle.data import Dataset
from test_hostile_names import data

def evil(rest, like):
    return data(rest)
"""
VICTIM = """
from test_hostile_names import victim

def make(how):
    return victim()
"""
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section"),
    *("h1", "h2", "h3", "p", "a", "div", "span", "b", "i", "u", "em", "small", "br", "ul", "li"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "img"),
    *("details", "summary", "pre", "svg", "g", "path", "line", "text", "rect", "circle"),
    "script",
}
SHORT = ("--goal", "untargeted", "--goal", "targeted", "--pixels", 3, "--queries", 20)


def images() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (len(NAMES), 3, 8, 8), generator=generator).float() / 255


def scores(x: torch.Tensor) -> torch.Tensor:
    """Easy to fool; the last image makes it fail with evil words."""
    if any(torch.equal(image, images()[-1]) for image in x):
        raise RuntimeError(MARKUP.replace("\r\n", " ") + "\nmore")
    return x[:, :, 0, :2].flatten(1)[:, :4] * 3


def victim():
    about = {"classes": [f"{MARKUP}{i}" for i in range(4)], "shape": (3, 8, 8), "name": MARKUP}
    return brusle.victims.wrap(scores, output="logits", **about)


def data(name: str) -> Dataset:
    labels = (images()[:, :, 0, :2].flatten(1)[:, :4]).argmax(1)
    classes = tuple(f"{MARKUP}{i}" for i in range(4))
    return Dataset(name, images(), labels, classes, tuple(NAMES))


@dataclass(frozen=True)
class Evil(BruSLe):
    """An attack with a name of its own."""

    @property
    def label(self) -> str:
        return "_" + MARKUP


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Path]:
    """A folder with a run that the command line made and one that Python made."""
    folder = tmp_path_factory.mktemp("evil") / "deep" / "in"
    folder.mkdir(parents=True)
    install(folder, "brusle_evil", PLUGIN, data={"evil": "evil"})
    (folder / "evil_victim.py").write_text(VICTIM)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.setenv("COLUMNS", "100")
        yield folder
    for name in ("brusle_evil", "evil_victim"):
        sys.modules.pop(name, None)


def evil_option(text: str) -> str:
    """As much of ``text`` as the value of an option can have."""
    return text.replace("\0", "").replace("&", "")


DATA = ("--data", "evil:" + evil_option(MARKUP))
VICTIM_NAME = ("--victim", "python:evil_victim:make?how=" + evil_option(MARKUP))
BY_COMMAND, BY_PYTHON = "[bold]$x^$<b>\x1b[31m", "[red]python"


def calm(*arguments: object, codes: tuple[int, ...] = (0,)) -> str:
    """What a command prints: no traceback, and nothing that commands a terminal."""
    answer = command(*arguments)
    said = answer.stdout + answer.stderr
    assert answer.returncode in codes, said
    assert "Traceback" not in said
    for character in said:
        assert character == "\n" or (character.isprintable() and character != "\u202e"), said
    return answer.stdout


@pytest.fixture(scope="module")
def runs(place) -> tuple[str, str]:
    attacks = ("--attack", "brusle", "--attack", "sparse-rs", "--out", BY_COMMAND)
    said = calm("evaluate", *VICTIM_NAME, *DATA, *SHORT, *attacks, codes=(3,))  # one image fails
    assert "[/bold][red]x[/red]" in "".join(said.split())  # as it is called
    evil = [Evil(3, 20), SparseRS(3, 20)]
    brusle.evaluate(victim(), data(MARKUP), evil, out=BY_PYTHON, on_warning=lambda text: None)
    return BY_COMMAND, BY_PYTHON


def test_nothing_is_written_outside_of_the_run_folder(place, runs) -> None:
    files = ["brusle_evil-1.0.dist-info", "brusle_evil.py", "evil_victim.py", "__pycache__"]
    assert {*os.listdir(place)} <= {*files, *runs}
    assert os.listdir(place.parent) == ["in"] and os.listdir(place.parent.parent) == ["deep"]
    assert not Path("/absolute").exists()
    for folder in runs:
        known = {
            "adversarial", "curve.png", "gallery.png", "pairs.json", "results.lock",
            "results.sqlite", "rows.csv", "rows.json", "run.json",
        }  # fmt: skip
        open_ones = {"results.sqlite-shm", "results.sqlite-wal"}
        assert {*os.listdir(folder)} - open_ones == known


@pytest.mark.parametrize("which", [0, 1])
def test_every_success_has_a_picture_of_its_own(place, runs, which, tmp_path) -> None:
    run = Run.open(runs[which], data(MARKUP))
    hits = [row for row in run.rows() if row["status"] == "success"]
    assert len({row["image"] for row in hits}) > len(NAMES) / 2
    pictures = [*Path(runs[which], "adversarial").rglob("*.png")]
    assert len(pictures) == len(hits)
    assert len({str(path).casefold() for path in pictures}) == len(hits)
    for path in pictures:
        Image.open(path).load()
    # the same files whoever writes them, and whatever else is written
    assert export_images(runs[which], tmp_path, data(MARKUP)) == len(hits)
    inner = {path.relative_to(Path(runs[which], "adversarial")) for path in pictures}
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*.png")} == inner


def test_a_part_of_the_images_has_the_same_files(place, runs, tmp_path) -> None:
    every = data(MARKUP)
    some = [4, 7, 12]
    part = Dataset(
        MARKUP, every.images[some], every.labels[some], every.classes,
        tuple(every.names[at] for at in some),
    )  # fmt: skip
    brusle.evaluate(victim(), part, [Evil(3, 20)], "untargeted", out=tmp_path, on_progress=None)
    (folder,) = (tmp_path / "adversarial").iterdir()
    mine = {path.name for path in folder.iterdir()}
    assert mine and mine <= {path.name for path in Path(BY_PYTHON, "adversarial").rglob("*.png")}


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("which", [0, 1])
def test_no_cell_is_a_formula(place, runs, which, tmp_path) -> None:
    folder = Path(runs[which])
    calm("export", folder, "--to", tmp_path / "rows.csv")
    calm("export", folder, "--to", tmp_path / "rows.json")
    truth = json.loads((tmp_path / "rows.json").read_text())
    assert {row["image"] for row in truth} == {*NAMES}  # names are what they are
    for path in (folder / "rows.csv", tmp_path / "rows.csv"):
        rows, truth = cells(path), json.loads(path.with_suffix(".json").read_text())
        assert len(rows) == len(truth)
        assert len(path.read_bytes().splitlines()) == len(truth) + 1  # a line for each
        for row, known in zip(rows, truth, strict=True):
            for column, cell in row.items():
                value = known.get(column)
                if isinstance(value, str):
                    assert not cell.lstrip().startswith(("=", "+", "-", "@"))
                    assert cell in (shown(value), f"'{shown(value)}")
                elif isinstance(value, int | float):
                    assert cell in (repr(value), str(value))  # numbers stay numbers, minus and all
    assert any(row["loss"].startswith("-") for row in cells(folder / "rows.csv"))


def test_the_other_formats_keep_names_as_they_are(place, runs, tmp_path) -> None:
    from pyarrow import parquet

    calm("export", runs[0], "--to", tmp_path / "rows.parquet")
    table = parquet.read_table(tmp_path / "rows.parquet")
    assert {*table["image"].to_pylist()} == {*NAMES}
    places = ("--images", tmp_path / "images", "--npz", tmp_path / "a.npz")
    calm("export", runs[0], *places, *DATA)
    with np.load(tmp_path / "a.npz") as arrays:
        assert {*arrays["names"].tolist()} <= {name.rstrip("\0") for name in NAMES}
    manifest = json.loads(Path(runs[0], "pairs.json").read_text())
    assert [entry["name"] for entry in manifest["entries"]]
    assert json.loads(Path(runs[0], "run.json").read_text())["classes"][0] == f"{MARKUP}0"


def test_the_run_is_found_again_by_its_names(place, runs) -> None:
    again = calm(
        "evaluate", *VICTIM_NAME, *DATA, *SHORT, "--attack", "brusle", "--out", BY_COMMAND,
        codes=(3,),
    )  # fmt: skip
    assert "attacks were stored already and not run again" in " ".join(again.split())


def test_commands_that_print(place, runs, tmp_path) -> None:
    for folder in runs:
        calm("status", folder)
        json.loads(calm("status", folder, "--json"))
        calm("compare", folder)
        json.loads(calm("compare", folder, "--json"))
        calm("report", folder, "--md")
        json.loads(calm("report", folder, "--json"))
        print(repr(Run.open(folder)))
        assert "\x1b" not in repr(Run.open(folder))
    calm("compare", *runs)
    calm("verify", runs[0], codes=(2,))  # a run folder does not say what is run
    calm("verify", runs[0], *VICTIM_NAME, *DATA, codes=(0, 3))
    calm("check", *VICTIM_NAME, *DATA, codes=(0, 3))
    calm("pairs", *VICTIM_NAME, *DATA, "--out", tmp_path / "[red].json")
    calm("list")
    odd = tmp_path / "[red]$_{\x1b[31m.png"
    levels = (images()[0].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    Image.fromarray(levels).save(odd)
    pictures = ("--picture", tmp_path / "$x^$.png")
    said = calm("attack", odd, *VICTIM_NAME, "--queries", 60, *pictures)
    assert shown(MARKUP) in said
    effects = ("--attack", "pixel-bandit", "--effects", tmp_path / "e.png", "--json")
    json.loads(calm("attack", odd, *VICTIM_NAME, "--queries", 60, *effects))
    json.loads(calm("attack", odd, *VICTIM_NAME, "--queries", 60, "--explain", tmp_path, "--json"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("attack", MARKUP),
        ("attack", "good.png", "--victim", MARKUP),
        ("evaluate", "--data", MARKUP),
        ("evaluate", "--config", MARKUP),
        ("evaluate", "--attack", MARKUP),
        ("evaluate", "--goal", MARKUP),
        ("evaluate", "--defence", MARKUP),
        ("status", MARKUP),
        ("export", MARKUP, "--to", "x.csv"),
        ("report", MARKUP),
        ("compare", MARKUP),
        ("film", MARKUP),
        ("verify", MARKUP),
        ("reproduce", MARKUP),
        ("data", "fetch", "cifar10", "--archive", MARKUP, "--dir", "fetched"),
        (MARKUP,),
        ("list", "--" + MARKUP),
    ],
)
def test_errors_are_one_line(place, arguments) -> None:
    answer = command(*arguments)
    assert answer.returncode == 2
    for character in answer.stderr:
        assert character == "\n" or (character.isprintable() and character != "\u202e")
    assert answer.stderr.splitlines()[-1].lower().startswith("error: ")


def test_films_stay_in_the_run_folder(place, tmp_path) -> None:
    folder = tmp_path / "deep" / "traced"
    some = [NAMES.index(name) for name in ("../../escaped", "/absolute/escaped", "💥" * 90, "..")]
    every = data(MARKUP)
    part = Dataset(
        MARKUP, every.images[some], every.labels[some], every.classes,
        tuple(every.names[at] for at in some),
    )  # fmt: skip
    brusle.evaluate(victim(), part, [Evil(3, 20)], "untargeted", out=folder, trace=True)
    for name in part.names:
        calm("film", folder, "--image", name, "--seconds", 1, *DATA)
    films = [*tmp_path.rglob("*.webp")]
    assert len(films) == len(some) and {path.parent for path in films} == {folder}
    assert f"no image {MARKUP!r}"[:30] in command("film", folder, "--image", MARKUP).stderr


def test_pages_hold_names_as_text_only(place, runs, tmp_path) -> None:
    pages = []
    for at, folder in enumerate(runs):
        calm("report", folder, "--out", tmp_path / f"{at}.html", *DATA)
        pages.append(tmp_path / f"{at}.html")
    calm("compare", *runs, "--out", tmp_path / "c.html")
    for path in (*pages, tmp_path / "c.html"):
        text = path.read_text(encoding="utf-8")
        found = Reader(text)  # the elements are balanced
        assert {name for name, _ in found.found} <= ALLOWED
        for _, attributes in found.found:
            assert not [name for name in attributes if name.startswith("on")]
            for name in ("src", "href"):
                assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,"))
        assert shown(MARKUP) in found.text
        assert not {c for c in text if not c.isprintable() and c not in "\n\N{NO-BREAK SPACE}"}
        pictures = [attributes for name, attributes in found.found if name == "img"]
        assert bool(pictures) == bool(found.data()) == (path in pages)  # a comparison has none


def test_markdown_holds_names_as_text_only(place, runs, tmp_path) -> None:
    for at, folder in enumerate(runs):
        calm("report", folder, "--out", tmp_path / f"{at}.md")
    calm("compare", *runs, "--out", tmp_path / "c.md")
    for path in tmp_path.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert all(c.isprintable() or c == "\n" for c in text)
        bare = text.replace("\\\\", "")
        for mark in ("<", ">", "`", "|x", "[", "]", "$", "_"):
            assert mark not in bare.replace(f"\\{mark}", ""), mark
        for block in text.split("\n\n"):
            if block.startswith("|"):  # a pipe in a name opens no column
                lines = block.replace("\\\\", "").replace("\\|", "").splitlines()
                assert len({line.count("|") for line in lines}) == 1


# what cannot be


def test_names_are_different_texts() -> None:
    def read(rows):
        return torch.zeros(len(rows), 3, 4, 4)

    def place(*names):
        return Source("here", torch.arange(len(names)), (), names, read)

    with pytest.raises(InputError, match="two images of here have the same name, 'a'"):
        place("a", "b", "a")
    with pytest.raises(InputError, match=r"an image of here is called '\\udcff'.*: rename it"):
        place("a", "\udcff")
    with pytest.raises(InputError, match="an image of here is called 3"):
        place("a", 3)
    with pytest.raises(InputError, match="here has 2 labels and 1 names"):
        Source("here", torch.arange(2), (), ("a",), read)
