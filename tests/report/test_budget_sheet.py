"""Sheets of several budgets: every panel is the image that is stored, below its own heading."""

import json

import numpy as np
import pytest
import torch
from entry import run as command
from models import integer_model
from PIL import Image

import brusle
from brusle.attacks import BruSLe
from brusle.errors import InputError
from brusle.evaluation.storing.choosing import choose
from brusle.report.budget_sheet import MOST, budget_sheet, write_budgets
from brusle.report.style import DARK, LIGHT

SHAPE = (3, 6, 8)
HOSTILE = "$x_1$ \x1b[2J"


def evaluated(pixels=(2, 5), goal="untargeted", count=3, **options):
    images = torch.randint(0, 256, (count, *SHAPE), generator=torch.Generator().manual_seed(0))
    victim = integer_model(SHAPE, 4).victim()
    labels = victim(images / 255).argmax(1)
    attacks = [BruSLe(number, 30) for number in pixels]
    return brusle.evaluate(victim, (images / 255, labels), attacks, goal, **options)


def drawn(figure) -> list[np.ndarray]:
    """What the axes show that have an image as it is, and not a magnified one."""
    shown = [np.asarray(axes.images[0].get_array()) for axes in figure.axes]
    return [picture for picture in shown if picture.shape[:2] == SHAPE[1:]]


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


@pytest.mark.parametrize("style", [LIGHT, DARK], ids=["light", "dark"])
def test_each_image_stands_with_its_budgets(style) -> None:
    run = evaluated()
    figure = budget_sheet(run, choose(run), style)
    shown = iter(drawn(figure))
    few, many = run.results
    for at, original in enumerate(few.problems.images):
        for image in (original, few.images[at], many.images[at]):
            levels = (image * 255).round().byte().permute(1, 2, 0).numpy()
            np.testing.assert_array_equal(next(shown), levels)
    assert next(shown, None) is None
    assert len(figure.axes) == 3 * (1 + 2 * 2)
    said = texts(figure)
    assert "2 pixels" in said and "5 pixels" in said
    for row in (row for setting in run.settings for row in run.stored(setting)):
        queries = f"{row.queries} {'query' if row.queries == 1 else 'queries'}"
        assert f"{row.pixels} pixels, {queries}" in said


def test_what_was_not_fooled_is_called_that() -> None:
    run = evaluated(pixels=(1,), count=6)
    said = texts(budget_sheet(run, choose(run)))
    rows = run.stored(run.settings[0])
    assert {row.status for row in rows} >= {"failed"}
    assert said.count("withstood, best try") == sum(row.status == "failed" for row in rows)
    arrows = sum(text.startswith("\N{RIGHTWARDS ARROW}") for text in said)
    assert arrows == sum(row.status == "success" for row in rows)


def test_of_several_seeds_one_is_drawn_and_of_several_targets_all() -> None:
    run = evaluated(goal="targeted", targets=2, seed=(0, 1))
    figure = budget_sheet(run, choose(run))
    assert len(figure.axes) == 3 * 2 * (1 + 2 * 2)


def test_too_many_are_refused() -> None:
    run = evaluated(pixels=range(1, MOST + 2))
    with pytest.raises(InputError, match=f"room for {MOST} settings.*--setting"):
        budget_sheet(run, choose(run))
    run = evaluated(count=MOST + 1)
    with pytest.raises(InputError, match=f"room for {MOST} images"):
        budget_sheet(run, choose(run))


def test_hostile_names_stay_text(tmp_path) -> None:
    run = evaluated()
    run.about = run.about.model_copy(update={"classes": (HOSTILE,) * 4})
    write_budgets(run, choose(run), tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 500
    assert r"\$x_1\$ \x1b[2J" in texts(budget_sheet(run, choose(run)))


def test_the_command_draws_what_was_chosen_and_asks_nobody(tmp_path, monkeypatch) -> None:
    attacks = [BruSLe(number, 20) for number in (2, 5)]
    run = brusle.evaluate(attacks=attacks, goal="untargeted", limit=4, out=tmp_path / "run")
    monkeypatch.setattr("brusle.victims.registry.load_victim", lambda *_: pytest.fail("opened"))
    name = run.stored(run.settings[0])[0].image
    answer = command("explain", tmp_path / "run", "--by-pixels", "--image", name, "--json")
    assert answer.returncode == 0
    path = tmp_path / "run" / "explain" / "by-pixels.png"
    assert json.loads(answer.stdout) == {"sheet": str(path), "images": [name]}
    with Image.open(path) as sheet:
        assert sheet.width > sheet.height / 2
