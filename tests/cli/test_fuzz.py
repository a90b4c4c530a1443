"""No command ends in a traceback, or with an exit code that means something else."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from entry import run
from models import integer_model, own_labels, random_images
from PIL import Image

import brusle
from brusle.attacks import BruSLe

VICTIMS = """
import sys
import brusle
import torch

def answering(function, output="logits"):
    about = {"classes": list("abcde"), "shape": (3, 8, 8), "name": "odd"}
    few = brusle.Patience(waits=0)
    return brusle.victims.wrap(function, output=output, patience=few, **about)

class Own:
    name, output, device = "own", "logits", torch.device("cpu")
    def __init__(self, answer): self.answer = answer
    def __call__(self, images): return self.answer

def good(x): return x.flatten(1)[:, :5] * 3 - 1
def stop(x): raise SystemExit(0)
def refuse(x): raise ConnectionRefusedError(111, "Connection refused")
def sometimes(x):
    if len(x) < 3: raise RuntimeError("too few\\nor so")
    return good(x)

def make(how):
    if how == "exits": sys.exit(0)
    if how == "nothing": return None
    if how == "broken": raise BrokenPipeError(32, "Broken pipe")
    if how == "interrupts": raise EOFError("end")
    if how.startswith("own-"):
        return Own({"own-none": None, "own-list": [1, 2], "own-int": 3, "own-text": "x"}[how])
    function = {
        "good": good,
        "raises": lambda x: x.nothing,
        "refuses": refuse,
        "pipe": lambda x: (_ for _ in ()).throw(BrokenPipeError(32, "Broken pipe")),
        "eof": lambda x: (_ for _ in ()).throw(EOFError()),
        "stops": stop,
        "sometimes": sometimes,
        "empty": lambda x: torch.zeros(len(x), 0),
        "one": lambda x: torch.zeros(len(x), 1),
        "flat": lambda x: torch.zeros(len(x)),
        "few": lambda x: torch.zeros(0, 5),
        "text": lambda x: ["a"] * len(x),
        "none": lambda x: None,
        "nan": lambda x: torch.full((len(x), 5), torch.nan),
        "infinite": lambda x: torch.full((len(x), 5), torch.inf),
        "ints": lambda x: torch.arange(5).repeat(len(x), 1),
        "complex": lambda x: torch.zeros(len(x), 5, dtype=torch.complex64),
        "list": lambda x: [[1.0, 2, 3, 4, 0]] * len(x),
        "ragged": lambda x: [[1.0], [2.0, 3.0]],
        "dict": lambda x: {"scores": 1},
        "many": lambda x: torch.zeros(len(x), 2 + len(x)),
        "generator": lambda x: (1 for _ in x),
    }[how]
    return answering(function)
"""
ODD = [
    "exits", "nothing", "broken", "interrupts", "own-none", "own-list", "own-int", "own-text",
    "raises", "refuses", "pipe", "eof", "stops", "sometimes", "empty", "one", "flat", "few", "text",
    "none", "nan", "infinite", "complex", "ragged", "dict", "many", "generator",
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Path]:
    """A folder with all kinds of files, good and bad, which is the current one."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "oddities.py").write_text(VICTIMS)
    images, labels = random_images(10, (3, 8, 8)), np.arange(10) % 5
    levels = (images * 255).byte().numpy()
    np.savez(folder / "good.npz", images=levels, labels=labels)
    np.savez(folder / "none.npz", images=levels[:0], labels=labels[:0])
    np.savez(folder / "other.npz", stuff=levels)
    np.savez(folder / "objects.npz", images=np.array([{}, None]), labels=labels[:2])
    Image.fromarray(levels[0].transpose(1, 2, 0)).save(folder / "good.png")
    (folder / "empty").touch()
    junk = random.Random(0).randbytes(4000)
    for name in ("junk", "junk.png", "junk.npz", "junk.onnx", "junk.yaml", "junk.json", "junk.pt"):
        (folder / name).write_bytes(junk)
    (folder / "half.png").write_bytes((folder / "good.png").read_bytes()[:60])
    (folder / "half.npz").write_bytes((folder / "good.npz").read_bytes()[:300])
    (folder / "deep.yaml").write_text("[" * 5000)
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "list.yaml").write_text("- 1\n")
    (folder / "odd.yaml").write_text("pixels: {untargeted: [1], 3: x}\nqueries: .nan\n")
    (folder / "keys.yaml").write_text("1: 2\n? [a, b]\n: c\n")
    (folder / "tagged.yaml").write_text("victim: !!python/object/apply:os.getcwd []\n")
    (folder / "list.json").write_text("[1, 2]")
    (folder / "null.json").write_text("null")
    (folder / "folder").mkdir()
    (folder / "folder" / "class").mkdir()
    shutil.copy(folder / "junk.png", folder / "folder" / "class")
    for name in ("junk", "empty"):
        (folder / f"run-{name}").mkdir()
        shutil.copy(folder / name, folder / f"run-{name}" / "results.sqlite")
    (folder / "run-folder" / "results.sqlite").mkdir(parents=True)
    model = integer_model((3, 8, 8), 4)
    data = (images, own_labels(model, images))
    brusle.evaluate(model.victim(), data, [BruSLe(2, 5)], "untargeted", folder / "run")
    (folder / "secret").write_text("x")
    (folder / "secret").chmod(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder
    sys.modules.pop("oddities", None)


def check(*arguments: object, codes: tuple[int, ...] = (0, 2, 3)) -> None:
    """Run a command: no traceback, and an error is one line."""
    answer = run(*arguments)
    said = f"{' '.join(map(str, arguments))}\n{answer.stdout}\n{answer.stderr}"
    assert answer.returncode in codes, said
    assert "Traceback" not in answer.stderr, said
    if answer.returncode == 2 and answer.stderr.startswith("error: "):
        assert answer.stderr.count("\n") == 1, said


NAME = "python:oddities:make?how="
SHORT = ("--data", "npz:good.npz")
EVALUATE = ("evaluate", "--goal", "untargeted", "--pixels", 2, "--queries", 3, "--attack", "brusle")


@pytest.mark.parametrize("how", ODD)
def test_odd_victims_fail_with_3(place, how) -> None:
    victim = ("--victim", NAME + how)
    one_image = {"sometimes": (1, 3), "many": (1, 3)}.get(how, (3,))  # many: as an image has scores
    check("attack", "good.png", *victim, "--queries", 3, "--pixels", 2, codes=one_image)
    check("attack", "good.png", *victim, "--label", 0, "--queries", 3, codes=one_image)
    some = (0, 3) if how == "sometimes" else (3,)
    check("pairs", *SHORT, *victim, "--images", 3, "--out", "p.json", codes=some)
    check("check", *SHORT, *victim, codes=(3,))
    # ten images in calls of eight: "sometimes" fails on the last two
    check(*EVALUATE, *SHORT, *victim, "--batch-size", 8, "--out", f"out-{how}", codes=(3,))


@pytest.mark.parametrize("how", ["good", "ints", "list"])
def test_usable_victims(place, how) -> None:
    victim = ("--victim", NAME + how)
    check("attack", "good.png", *victim, "--queries", 3, "--pixels", 2, codes=(0, 1))
    check("pairs", *SHORT, *victim, "--out", "p.json", codes=(0, 2))
    check("check", *SHORT, *victim, codes=(0, 3))
    check(*EVALUATE, *SHORT, *victim, "--out", f"out-{how}", codes=(0,))


def test_an_unreachable_victim_is_one_line(place) -> None:
    victim = ("--victim", NAME + "refuses")
    reason = "(ConnectionRefusedError: [Errno 111] Connection refused)"
    wanted = f"error: {NAME}refuses does not answer {reason}"
    for command in (("attack", "good.png"), ("pairs", *SHORT), ("check", *SHORT)):
        answer = run(*command, *victim)
        assert answer.returncode == 3
        if command[0] != "check":
            assert (answer.stderr, answer.stdout) == (wanted + "\n", "")
    answer = run(*EVALUATE, *SHORT, *victim, "--out", "unreachable")
    assert answer.returncode == 3
    line, stored, command = answer.stderr.splitlines()
    assert line == wanted and stored == "0 of 10 attacks are stored in unreachable"
    assert command.startswith("the same command goes on: brusle evaluate ")


FILES = [
    "missing", "folder", "empty", "junk", "secret", "junk.png", "half.png", "junk.npz", "half.npz",
    "none.npz", "other.npz", "objects.npz", "junk.yaml", "deep.yaml", "list.yaml", "odd.yaml",
    "keys.yaml", "tagged.yaml", "deep.json", "list.json", "null.json", "run", "run-junk",
    "run-empty", "run-folder", "", "n" * 300, "good.png/x",
]  # fmt: skip


@pytest.mark.parametrize("file", FILES)
def test_odd_files_are_refused(place, file) -> None:
    victim = ("--victim", NAME + "good")
    refused = {"codes": (2, 3)}
    check("attack", file, *victim, **refused)
    check("attack", "good.png", *victim, "--attack", "pointwise", "--start", file, **refused)
    for kind in ("npz", "folder", "imagenet", "stl10:test?dir=", "cifar10:test?dir="):
        name = f"{kind}{file}" if "=" in kind else f"{kind}:{file}"
        check(*EVALUATE, "--data", name, *victim, "--out", "refused", **refused)
    check("check", "--data", f"npz:{file}", *victim, **refused)
    check("pairs", "--data", f"npz:{file}", *victim, **refused)
    for kind in ("onnx", "torchscript", "export", "checkpoint", "python"):
        options = "?arch=resnet20" if kind == "checkpoint" else ""
        check("attack", "good.png", "--victim", f"{kind}:{file}{options}", **refused)
    check("evaluate", "--config", file, **refused)
    check(*EVALUATE, "--pairs", file, *victim, "--out", "refused", **refused)
    for command in ("status", "report", "compare", "verify"):
        check(command, file, codes=(0, 2, 3) if file == "run" else (2, 3))
    check("export", file, "--to", "rows.csv", codes=(0,) if file == "run" else (2, 3))
    check("data", "fetch", "cifar10", "--archive", file, "--dir", "fetched", **refused)


@pytest.mark.parametrize("out", ["folder", "good.png/x", "n" * 300, "/proc/x", "secret/x"])
def test_odd_places_to_write_to(place, out) -> None:
    victim, wrong = ("--victim", NAME + "good"), {"codes": (2,)}
    short = ("--queries", 30, "--pixels", 30)
    for name in ("--out", "--picture"):
        check("attack", "good.png", *victim, *short, name, out, **wrong)
    bandit = ("--attack", "pixel-bandit", "--effects", f"{out}/e.png" if out == "folder" else out)
    check("attack", "good.png", *victim, *short, *bandit, codes=(0, 2) if out == "folder" else (2,))
    if out != "folder":
        check("attack", "good.png", *victim, *short, "--explain", out, **wrong)
        check("explain", "run", "--look", "none", *SHORT, "--out", out, **wrong)
    check("pairs", *SHORT, *victim, "--out", out, **wrong)
    check("report", "run", "--out", out, **wrong)
    if out != "folder":
        check(*EVALUATE, *SHORT, *victim, "--out", out, **wrong)
        check("export", "run", *SHORT, "--images", out, **wrong)
    check("export", "run", *SHORT, "--npz", out, **wrong)
    check("export", "run", "--to", out, **wrong)


WORDS = [
    "", "-1", "0", "1e9", "nan", "99999999999999999999", "brusle", "brusle:", "brusle:colours=",
    "brusle:colours=x", "all", "sample", "sample?x=1", "zoo:", "zoo:cifar10-resnet20?runtime=tpu",
    ":", "?", "a?b", "rnd", "rnd:x", "rnd:-1", "topk:0", "round:-1", "jpeg:0", "median:2",
    "python:", "python:os", "python:os:getcwd", "python:oddities:make", "onnx:", "npz:", "table-1",
    "cuda", "meta", "cpu:7", "--", "-", "💥",
]  # fmt: skip
OPTIONS = {
    "attack": ["--victim", "--device", "--defence", "--label", "--target", "--attack", "--pixels",
               "--queries", "--seed", "--eot"],
    "evaluate": ["--victim", "--device", "--defence", "--data", "--goal", "--pixels", "--attack",
                 "--queries", "--seed", "--limit", "--targets", "--eot", "--batch-size"],
    "check": ["--victim", "--device", "--defence", "--data", "--limit", "--images", "--queries",
              "--batch-size"],
    "pairs": ["--victim", "--device", "--defence", "--data", "--images", "--targets", "--seed"],
    "reproduce": ["--victim", "--part", "--data", "--limit", "--targets", "--pixels", "--queries",
                  "--seed", "--device"],
    "compare": ["--baseline", "--queries"],
    "status": ["--watch"],
    "verify": ["--victim", "--device", "--data", "--batch-size"],
    "report": ["--data"],
    "export": ["--data", "--to"],
    "list": [],
}  # fmt: skip


def request(command: str, option: str, word: str) -> list[object]:
    """A command that is quick if it is refused or not, with one odd option."""
    small: dict[str, list[object]] = {
        "attack": ["good.png", "--victim", NAME + "good", "--queries", 2, "--pixels", 2],
        "evaluate": [*EVALUATE[1:], *SHORT, "--victim", NAME + "good", "--out", "fuzzed"],
        "check": [*SHORT, "--limit", 5, "--victim", NAME + "good"],
        "pairs": [*SHORT, "--images", 2, "--victim", NAME + "good", "--out", "p.json"],
        "reproduce": ["table-1", "--plan"],
        "compare": ["run"], "status": ["run"], "verify": ["run"], "report": ["run"],
        "export": ["run", "--images", "images"], "list": [],
    }  # fmt: skip
    return [command, *small[command], *([option, word] if option else [word])]


def requests() -> list[tuple[str, str, str]]:
    every = [
        (c, option, word) for c, options in OPTIONS.items() for option in options for word in WORDS
    ]
    return every + [(command, "", word) for command in OPTIONS for word in WORDS]


def one_more(command: str, option: str, word: str) -> None:
    # a goal, label or target may be right, and then it may not be found
    codes = (0, 1, 2, 3) if command == "attack" else (0, 2, 3)
    check(*request(command, option, word), codes=codes)


@pytest.mark.parametrize("part", range(4))
def test_odd_words(place, part) -> None:
    chosen = random.Random(7).sample(requests(), 160)
    for command, option, word in chosen[part::4]:
        one_more(command, option, word)


@pytest.mark.slow
def test_all_odd_words(place) -> None:
    failed = []
    for command, option, word in requests():
        try:
            one_more(command, option, word)
        except AssertionError as error:
            failed.append(" ".join(str(error).split()[:60]))
    assert not failed, "\n".join(failed)


def test_a_bug_has_its_own_exit_code(place, monkeypatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("brusle.attacks.make", broken)
    answer = run("attack", "good.png")
    assert answer.returncode == 70 and answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("error: ZeroDivisionError: by nothing (test_fuzz.py, line ")
    assert "this is a bug in brusle, please report it" in answer.stderr
    monkeypatch.setenv("BRUSLE_TRACEBACK", "1")
    answer = run("attack", "good.png")
    assert answer.returncode == 70 and "Traceback" in answer.stderr
    help_text = " ".join(run("--help").stdout.split())
    assert "70 a bug in brusle" in help_text and "BRUSLE_TRACEBACK" in help_text


def test_nobody_reads(place) -> None:
    command = [sys.executable, "-c", "from brusle.cli import main; main()", "list"]
    reading, writing = os.pipe()
    os.close(reading)
    answer = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (answer.returncode, answer.stderr) == (141, b"")
