"""The page of pictures: its commands can be given, and its pictures come from what they write."""

import shlex

import click
import pytest
from gallery import DOCS, draw, steps
from PIL import Image

from brusle.cli import cli

STEPS = list(steps((DOCS / "gallery.md").read_text(encoding="utf-8")))
COMMANDS = [step.command for step in STEPS if step.command]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_the_options_that_they_name(command) -> None:
    name, *words = shlex.split(command.removesuffix("&"))[1:]
    with click.Context(cli) as context:
        found = cli.get_command(context, name)
    found.make_context(name, words)  # raises if it does not know an option


def test_every_picture_is_made_by_a_command_above_it() -> None:
    written: list[str] = []
    for step in STEPS:
        words = shlex.split(step.command.removesuffix("&"))
        if words[1:2] == ["evaluate"]:
            written.append(words[words.index("--out") + 1])
        for file in step.files:
            assert file.startswith(tuple(f"{folder}/" for folder in written)), file
    pictures = {step.picture for step in STEPS if step.picture}
    assert len(pictures) == 8
    for picture in pictures:
        with Image.open(DOCS / picture) as opened:
            assert 600 < opened.width <= 1200


def test_pictures_stand_beside_each_other(tmp_path) -> None:
    for name, colour in (("a", "red"), ("b", "blue")):
        Image.new("RGB", (900, 300), colour).save(tmp_path / f"{name}.png")
    draw([tmp_path / "a.png", tmp_path / "b.png"], tmp_path / "both.webp")
    with Image.open(tmp_path / "both.webp") as both:
        assert both.size == (1200, 200)
        left, right = both.getpixel((100, 100)), both.getpixel((1100, 100))
    assert left[0] > 200 > left[2] and right[2] > 200 > right[0]
