"""``brusle film`` and ``brusle attack --film`` as a user sees them: what is written and refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from entry import run
from models import random_images
from PIL import Image
from stores import make_run, row, setting
from tampering import tamper
from torch import Tensor

import brusle
from brusle.attacks import BruSLe, SparseRS
from brusle.data import load, save_image
from brusle.victims import wrap

EVIL = "es$caped..\x1b[31m\u202e<b>\n"


@pytest.fixture(scope="module")
def film_run(tmp_path_factory) -> Path:
    """Two attacks with traces on a few bundled images, one of which is not attacked."""
    folder = tmp_path_factory.mktemp("films") / "run"
    attacks = [BruSLe(20, 25), SparseRS(20, 15)]
    brusle.evaluate(
        attacks=attacks, goal="targeted", targets=2, limit=10, out=folder, trace=True
    )  # fmt: skip
    return folder


@pytest.fixture
def copy(film_run, tmp_path) -> Path:
    return Path(shutil.copytree(film_run, tmp_path / "run"))


def rows(folder: Path) -> list[dict]:
    return json.loads((folder / "rows.json").read_text())


def chosen(folder: Path, **wanted) -> dict:
    """A row that was attacked and has these values."""
    found = (one for one in rows(folder) if one["queries"])
    return next(one for one in found if all(one[key] == wanted[key] for key in wanted))


def refused(*words: object) -> str:
    """The one line that a command ends with."""
    answer = run("film", *words)
    assert answer.returncode == 2 and answer.stdout == ""
    assert answer.stderr.count("\n") == 1 and answer.stderr.startswith("error: ")
    return answer.stderr


def test_a_film_is_written_into_the_run_folder(copy) -> None:
    one = chosen(copy, attack="BruSLe")
    before = sorted(path.name for path in copy.iterdir())
    target = load("sample").classes[one["target"]]
    words = ("--image", one["image"], "--attack", "brusle", "--target", target, "--seconds", 1)
    answer = run("film", copy, *words)
    assert answer.returncode == 0, answer.stderr
    (name,) = {path.name for path in copy.iterdir()} - {*before}
    assert name == f"film-{one['image']}-to-{one['target']}-01-brusle-targeted-20-px.webp"
    assert str(copy / name) in answer.stdout and "film of 1 s" in answer.stdout
    with Image.open(copy / name) as file:
        assert file.is_animated and file.format == "WEBP"


def test_json_says_what_was_written(film_run, tmp_path) -> None:
    one = chosen(film_run, attack="SparseRS")
    words = ("--image", one["image"], "--setting", 2, "--target", one["target"], "--seconds", 1)
    out = tmp_path / "deep" / "cat.GIF"
    answer = run("film", film_run, *words, "--out", out, "--dark", "--json")
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    assert said["film"] == str(out) and said["bytes"] == out.stat().st_size
    assert (said["image"], said["attack"], said["setting"]) == (one["image"], "SparseRS", 2)
    assert {key: said[key] for key in ("target", "status", "queries")} == {
        key: one[key] for key in ("target", "status", "queries")
    }
    with Image.open(out) as file:
        assert file.format == "GIF" and file.n_frames == said["frames"] and said["seconds"] == 1


def test_without_an_image_one_is_chosen_that_was_fooled(film_run, tmp_path) -> None:
    words = ("--attack", "sparse-rs", "--seconds", 1, "--out", tmp_path / "any.webp", "--json")
    said = json.loads(run("film", film_run, *words).stdout)
    assert (said["status"], said["attack"]) == ("success", "SparseRS")


def test_several_attacks_on_an_image_are_named(film_run) -> None:
    image = chosen(film_run, attack="BruSLe")["image"]
    said = refused(film_run, "--image", image)
    assert "4 attacks on" in said and "--setting 1 --target" in said and "--setting 2" in said
    assert "BruSLe targeted, 20 px" in said
    one_setting = refused(film_run, "--image", image, "--setting", 1)
    assert "2 attacks on" in one_setting and "--setting" not in one_setting.partition("with")[2]


def test_what_is_not_there(film_run, tmp_path) -> None:
    image = chosen(film_run, attack="BruSLe")["image"]
    assert "the run has no image 'nobody'" in refused(film_run, "--image", "nobody")
    assert "the run has no attack 'bruzle'" in refused(film_run, "--attack", "bruzle")
    assert "the run has no setting 7" in refused(film_run, "--setting", 7)
    assert "unknown class 'unicorn'" in refused(film_run, "--target", "unicorn")
    assert "name it .webp, .gif, .mp4" in refused(film_run, "--out", tmp_path / "film.avi")
    assert "takes 1 to 60 seconds, not 0" in refused(film_run, "--image", image, "--setting", 1,
        "--target", chosen(film_run, image=image)["target"], "--seconds", 0,
        "--out", tmp_path / "film.webp")  # fmt: skip
    assert str(tmp_path) in refused(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_image_that_was_not_attacked(tmp_path) -> None:
    make_run(tmp_path / "run", [(setting(), [row(1, "skipped", 0), row(2, "error", 0)])])
    said = refused(tmp_path / "run", "--image", "image-1")
    assert "'image-1' was not attacked, so there is no search to see" in said
    assert "no image was attacked" in refused(tmp_path / "run")


def test_what_was_stored_without_a_trace_gets_none_by_the_same_command(tmp_path) -> None:
    """What the message says is true: the same folder is of no use, another is."""
    words = ("--attack", "brusle", "--goal", "untargeted", "--pixels", 5, "--queries", 5)
    words += ("--limit", 2, "--out")
    for more in ((), ("--trace",)):
        assert run("evaluate", *words, tmp_path / "plain", *more).returncode == 0
        said = refused(tmp_path / "plain")
        assert said.startswith("error: all attacks were stored")
        assert "stored without a trace, and stored attacks are not run again" in said
        assert "brusle evaluate --trace with another --out" in said
    assert run("evaluate", *words, tmp_path / "other", "--trace").returncode == 0
    answer = run("film", tmp_path / "other", "--seconds", 1)
    assert answer.returncode == 0, answer.stderr


def test_a_damaged_trace_is_refused(copy) -> None:
    assert tamper(copy, "traces", trace=b"x")
    assert "a stored trace is damaged" in refused(copy)


def test_a_link_in_the_run_folder_is_not_followed(copy, tmp_path) -> None:
    one = chosen(copy, attack="BruSLe")
    words = ("--image", one["image"], "--setting", 1, "--target", one["target"], "--seconds", 1)
    name = f"film-{one['image']}-to-{one['target']}-01-brusle-targeted-20-px.webp"
    (tmp_path / "elsewhere").write_text("mine")
    (copy / name).symlink_to(tmp_path / "elsewhere")
    assert "is no plain file" in refused(copy, *words)
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_hostile_classes_and_a_victim_that_is_gone(tmp_path) -> None:
    """Nobody opens the victim, which cannot be opened; films stay in their folder."""
    images = random_images(2, (3, 8, 8))
    for number, image in enumerate(images):
        image[:, 0, 0] = number
        save_image(image, tmp_path / "data" / f"{number}{EVIL}" / f"{EVIL}.png")

    def scores(x: Tensor) -> Tensor:
        return torch.stack([0.5 - x[:, 0, 0, 0], x[:, 0, 0, 0] - 0.5], 1)

    victim, folder = wrap(scores, output="logits", name=EVIL), tmp_path / "in" / "run"
    data = f"folder:{tmp_path / 'data'}"
    brusle.evaluate(victim, data, [BruSLe(3, 20)], "untargeted", out=folder, trace=True)
    names = {one["image"] for one in rows(folder)}
    assert len(names) == 2 and EVIL in json.loads((folder / "run.json").read_text())["classes"][0]
    for name in names:
        answer = run("film", folder, "--image", name, "--seconds", 1)
        assert answer.returncode == 0, answer.stderr
        assert "\x1b" not in answer.stdout and answer.stdout.count("\n") == 2
    films = list(tmp_path.rglob("*.webp"))
    assert len(films) == 2 and all(path.parent == folder for path in films)
    shutil.rmtree(tmp_path / "data")
    assert "\x1b" not in refused(folder)


def test_attack_writes_a_film_and_books_the_same(tmp_path) -> None:
    sample = load("sample")
    save_image(sample.images[0], tmp_path / "image.png")
    words = ("attack", tmp_path / "image.png", "--queries", 40, "--out", tmp_path / "out.png")
    plain = run(*words, "--json")
    filmed = run(*words, "--json", "--film", tmp_path / "film.webp")
    assert plain.returncode == filmed.returncode and plain.stdout == filmed.stdout
    with Image.open(tmp_path / "film.webp") as file:
        assert file.is_animated
    refusal = run(*words, "--film", tmp_path / "film.avi")
    assert refusal.returncode == 2 and "name it .webp" in refusal.stderr
