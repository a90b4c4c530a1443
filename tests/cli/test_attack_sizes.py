"""``brusle attack`` on images of other sizes than the victim's: what is written and said."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from entry import run
from PIL import Image

from brusle.data import Framing, read_image

MODULE = """
import torch
from torch import nn
from brusle.data import Framing
from brusle.victims import TorchVictim

class Mean(nn.Module):
    def forward(self, x):  # dark or light
        light = x.mean(dim=(1, 2, 3)) - 0.5
        return torch.stack([-light, light], 1)

def make(**known):
    return TorchVictim(Mean(), **known)

def framed():
    return make(shape=(3, 8, 8), framing=Framing(10, (8, 8)))

def fixed():
    return make(shape=(3, 8, 8))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder with victims, a photograph that stands on its side, and a small image."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sizes.py").write_text(MODULE)
    levels = np.random.default_rng(0).integers(120, 134, (30, 20, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned to the right: 20 x 30
    Image.fromarray(levels).save("photo.png", exif=exif)
    Image.fromarray(levels[:8, :8]).save("small.png")
    yield tmp_path
    sys.modules.pop("sizes", None)


SMALL = ("--pixels", "40", "--queries", "200", "--out", "out.png")


@pytest.mark.parametrize(
    ("image", "victim", "options", "size", "before"),
    [
        ("small.png", "fixed", (), (8, 8), None),
        ("small.png", "framed", (), (8, 8), None),
        ("photo.png", "framed", (), (8, 8), (20, 30)),
        ("photo.png", "fixed", ("--size", "8"), (8, 8), (20, 30)),
        ("photo.png", "make", (), (20, 30), None),
        ("photo.png", "make", ("--size", "12"), (12, 12), (20, 30)),
    ],
)
def test_the_written_size_is_said(place: Path, image, victim, options, size, before) -> None:
    request = ("attack", image, "--victim", f"python:sizes:{victim}", *SMALL, *options)
    answer = run(*request)
    assert answer.returncode == 0, answer.stderr
    text = f"{size[0]} x {size[1]} pixels"
    if before is not None:
        text += f", resized or cropped from {before[0]} x {before[1]}"
    assert answer.stdout.endswith(f"written to out.png ({text})\n")
    with Image.open("out.png") as written:
        assert (written.height, written.width) == size
    said = json.loads(run(*request, "--json").stdout)
    assert said["size"] == list(size)
    assert said["file_size"] == list(before or size)


def test_only_the_said_pixels_differ_from_the_framed_image(place: Path) -> None:
    request = ("attack", "photo.png", "--victim", "python:sizes:framed", *SMALL, "--json")
    said = json.loads(run(*request).stdout)
    with Image.open("photo.png") as file:
        upright = file.transpose(Image.Transpose.ROTATE_270)
    framed = np.asarray(Framing(10, (8, 8)).apply(upright)).transpose(2, 0, 1)
    written = (read_image("out.png").numpy() * 255).round()
    differ = np.argwhere((written != framed).any(0)).tolist()
    assert differ == [[edit["row"], edit["column"]] for edit in said["edits"]]


@pytest.mark.parametrize(
    ("victim", "options", "message"),
    [
        ("fixed", (), "photo.png is 20 x 30 pixels, the victim takes 8 x 8: resize it first"),
        ("fixed", ("--size", "9"), "pixels of photo.png are 3 x 9 x 9, python:sizes:fixed takes 3"),
        ("make", ("--start", "small.png"), "starts have shape (1, 3, 8, 8) but images"),
    ],
)
def test_sizes_that_do_not_fit(place: Path, victim, options, message) -> None:
    answer = run("attack", "photo.png", "--victim", f"python:sizes:{victim}", *SMALL, *options)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert not Path("out.png").exists()


def test_the_start_is_read_in_the_same_way(place: Path) -> None:
    Image.new("RGBA", (8, 8), (1, 2, 3, 4)).save("start.png")
    request = ("attack", "small.png", "--victim", "python:sizes:fixed", *SMALL)
    answer = run(*request, "--start", "start.png")
    assert "start.png has transparent pixels" in answer.stderr
