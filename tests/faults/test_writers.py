"""Every file that users read is whole: the old one as long as the new one is not finished."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from entry import run as command
from models import integer_model, own_labels, random_images
from PIL import Image
from train import Recipe, Trainer

import brusle
from brusle.attacks import BruSLe, SparseRS
from brusle.errors import DataError

pytestmark = pytest.mark.slow

VICTIM = """
import torch
from brusle.victims import wrap

def make():
    return wrap(lambda x: x[:, :, 0, :2].flatten(1)[:, :4] * 3, output="logits", shape=(3, 8, 8))
"""
OWN = ("--victim", "python:plain_victim:make")
BANDIT = ("--attack", "pixel-bandit")
RUN = ("evaluate", *OWN, "--data", "npz:data.npz", "--goal", "untargeted", "--pixels", 3,
       "--queries", 30, "--attack", "brusle", "--out", "run")  # fmt: skip
REPRODUCE = ("reproduce", "cifar10-targeted", "--limit", 2, "--targets", 1, "--queries", 100,
             "--pixels", 40, "--data", "sample", "--out", "reproduced")  # fmt: skip
ATTACK = ("attack", "image.png", *OWN, "--queries", 200, "--pixels", 16)
WRITERS = [
    *((RUN, f"run/{name}") for name in ("rows.csv", "rows.json", "run.json", "pairs.json")),
    *((RUN, f"run/{name}") for name in ("curve.png", "gallery.png", "adversarial")),
    *((("export", "run", "--to", name), name) for name in ("r.csv", "r.json", "r.parquet")),
    (("export", "run", "--npz", "a.npz"), "a.npz"),
    (("export", "run", "--images", "pictures"), "pictures"),
    (("report", "run"), "run/report.html"),
    *((("report", "run", "--out", name), name) for name in ("r.html", "r.md", "r.json")),
    *((("compare", "two", "--out", name), name) for name in ("c.html", "c.md", "c.json")),
    (("pairs", *OWN, "--data", "npz:data.npz", "--out", "p.json"), "p.json"),
    ((*ATTACK, "--out", "a.png"), "a.png"),
    (ATTACK, "image-adversarial.png"),
    *(((*ATTACK, "--picture", name), name) for name in ("p.png", "p.jpg", "p.webp", "p.pdf")),
    *(((*ATTACK, *BANDIT, "--effects", name), name) for name in ("e.png", "e.npz")),
    ((*ATTACK, "--explain", "why"), "why"),
    (("explain", "run", "--look", "none"), "run/explain"),
    *((REPRODUCE, f"reproduced/reproduction.{end}") for end in ("json", "md", "png")),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("writers")
    (folder / "plain_victim.py").write_text(VICTIM)
    images = random_images(12, (3, 8, 8))
    labels = images[:, :, 0, :2].flatten(1)[:, :4].argmax(1)
    levels = (images * 255).round().byte().numpy()
    np.savez(folder / "data.npz", images=levels, labels=labels.numpy())
    Image.fromarray(levels[0].transpose(1, 2, 0)).save(folder / "image.png")
    model = integer_model((3, 8, 8), 4)
    data = (images, own_labels(model, images))
    two = [BruSLe(3, 20), SparseRS(3, 20)]
    brusle.evaluate(model.victim(), data, two, "untargeted", folder / "two", on_progress=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        for first in (RUN, REPRODUCE):
            assert command(*first).returncode == 0
        yield folder
    sys.modules.pop("plain_victim", None)


def files_of(target: Path) -> list[Path]:
    return sorted(target.rglob("*.png")) if target.is_dir() else [target]


@pytest.mark.parametrize(("arguments", "name"), WRITERS)
def test_a_file_that_is_not_finished_leaves_the_old_one(
    place, monkeypatch, arguments, name
) -> None:
    target = Path(name)
    assert command(*arguments).returncode == 0
    files = files_of(target)
    new = [path.read_bytes() for path in files]
    assert files and all(new)
    for path in files:
        path.write_bytes(b"old")
    replace = os.replace

    def refuse(source, goal) -> None:
        if Path(goal) in files:
            raise OSError(28, "No space left on device")
        replace(source, goal)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        answer = command(*arguments)
    assert answer.returncode == 2 and answer.stderr.startswith("error: cannot write ")
    assert "No space left on device; make room" in answer.stderr.splitlines()[0]
    assert [path.read_bytes() for path in files] == [b"old"] * len(files)
    assert not [*place.rglob(".brusle-*")]
    assert command(*arguments).returncode == 0
    assert all(path.read_bytes() != b"old" for path in files)


def test_training_replaces_its_files_at_once(tmp_path, monkeypatch) -> None:
    shapes = {"train": (64, 3, 32, 32), "test": (20, 3, 32, 32)}

    def read(folder, split):
        return np.zeros(shapes[split], np.uint8), np.arange(len(np.empty(shapes[split]))) % 10

    monkeypatch.setattr("brusle.data.cifar10.read", read)
    recipe = Recipe(epochs=1, batch=32)
    trainer = Trainer("net", recipe, tmp_path, tmp_path / "out", compiled=False)
    for name in ("net.training.safetensors", "net.safetensors", "net.json"):
        (tmp_path / "out" / name).write_bytes(b"old")

    def refuse(source, goal) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(DataError, match="make room"):
        trainer.run()
    trainer.epoch = 1
    with pytest.raises(DataError, match="make room"):
        trainer.run()
    assert {path.read_bytes() for path in (tmp_path / "out").iterdir()} == {b"old"}


KILLED = """
import os, signal, sys
from brusle.evaluation.storing import export
from brusle.evaluation.storing.runs import Run

kind, left = sys.argv[1], int(sys.argv[2])
rows = list(export.stored_rows(Run.open("run")))

def some():
    for at, row in enumerate(rows * 50):
        if at == left:
            os.kill(os.getpid(), signal.SIGKILL)
        yield row

export._write(export._WRITERS[kind], some(), export.Path("killed" + kind))
"""


@pytest.mark.parametrize("kind", [".csv", ".json", ".parquet"])
@pytest.mark.parametrize("left", [0, 1, 170, 299])
def test_a_kill_in_the_middle_leaves_the_old_rows(place, kind, left) -> None:
    path = Path("killed" + kind)
    path.write_bytes(b"old")
    answer = subprocess.run([sys.executable, "-c", KILLED, kind, str(left)], check=False)
    assert answer.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    for rest in place.glob(".brusle-*"):
        rest.unlink()
