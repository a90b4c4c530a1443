"""What a run folder, a manifest or a plan names is data, or the user has named it."""

import json
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from entry import run
from installed import install
from tampering import tamper
from torch import nn

import brusle
from brusle import attacks, data, defences, victims
from brusle.data import Framing, save_image
from brusle.evaluation import Manifest, choose
from brusle.evaluation.record import StoredTraits
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import FILE, Store
from brusle.locking import LOCK
from brusle.victim import traits
from brusle.victims import wrap
from brusle.victims.registry import REGISTRY

pytestmark = pytest.mark.slow

PLUGIN = """
import pathlib
pathlib.Path({trace!r}).touch()

def victim(rest, device, **options):
    import brusle
    return brusle.load_victim("zoo:cifar10-resnet20", "cpu")

def defence(victim, *values):
    return victim

def data(rest, like):
    import brusle
    return brusle.data.load("sample")

def attack(pixels, queries):
    import brusle
    return brusle.attacks.BruSLe(pixels, queries)

def make():
    return victim("", None)
"""


@pytest.fixture
def trace(tmp_path, monkeypatch) -> Path:
    """A file that is there once foreign code has run: a module here, and an installed plugin."""
    trace = tmp_path / "trace"
    code = PLUGIN.format(trace=str(trace))
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (here / "lying_here.py").write_text(code)
    groups = {"victims": "victim", "defences": "defence", "data": "data", "attacks": "attack"}
    points = {group: {"evil": name} for group, name in groups.items()}
    install(there, "evil_plugin", code, **points)
    monkeypatch.syspath_prepend(there)
    monkeypatch.chdir(here)
    yield trace
    sys.modules.pop("lying_here", None)
    sys.modules.pop("evil_plugin", None)


def called(name: str) -> dict[str, object]:
    """The facts of a victim of this name."""
    victim, *defences = name.split(" + ")
    return {"victim": victim, "defences": defences}


def rename(folder: Path, **facts: object) -> None:
    for name, value in facts.items():
        tamper(folder, "about", f"key = '{name}'", value=json.dumps(value))


READERS = (
    "status",
    "report",
    "report --md",
    "compare",
    "export --to rows.csv",
    "export --images images",
    "export --npz images.npz",
)


def read(folder: Path, command: str):
    name, *options = command.split(" ")
    return run(name, folder, *options)


VICTIMS = [
    "python:subprocess:getoutput?cmd=touch {trace}",
    "python:lying_here:make",
    "evil:x",
    "torchscript:program.pt",
    "export:program.pt2",
    "timm:hf-hub:evil/model",
    "robustbench:Standard?dir=elsewhere",
    "zoo:cifar10-resnet20 + evil:1",
    "zoo:cifar10-resnet20 + median:3 + evil:1",
]


@pytest.mark.parametrize("name", VICTIMS)
def test_reading_a_run_folder_opens_no_victim(name, folder, trace) -> None:
    rename(folder, **called(name.format(trace=trace)))
    for command in READERS:
        answer = read(folder, command)
        assert answer.returncode == 0, answer.stderr
        repr(Run.open(folder))
    assert len(list((trace.parent / "here" / "images").rglob("*.png"))) > 0
    answer = run("verify", folder)
    assert answer.returncode == 2 and answer.stdout == ""
    assert answer.stderr.startswith("error: the run names the ") and answer.stderr.count("\n") == 1
    assert "if you trust that, say so with --" in answer.stderr
    assert not trace.exists() and not (trace.parent / "here" / "elsewhere").exists()


def test_verify_opens_what_the_user_names(folder, trace) -> None:
    rename(folder, **called("python:lying_here:make + evil:1"))
    options = ("--victim", "python:lying_here:make")
    answer = run("verify", folder, *options)
    assert answer.returncode == 2 and "say so with --defence evil:1" in answer.stderr
    assert not trace.exists()
    answer = run("verify", folder, *options, "--defence", "evil:1")
    assert answer.returncode == 0, answer.stderr
    assert trace.exists() and "successes hold (python:lying_here:make + evil:1)" in answer.stdout


def test_data_that_only_the_run_names_are_no_plugin(folder, trace) -> None:
    rename(folder, data="evil:x")
    for command in (*READERS, "verify"):
        answer = read(folder, command)
        wants_images = any(word in command for word in ("--images", "--npz", "verify"))
        assert answer.returncode == (2 if wants_images else 0), answer.stderr
        if wants_images:
            assert "the run names the data evil:x, which runs the installed" in answer.stderr
    assert not trace.exists()
    answer = run("export", folder, "--npz", "images.npz", "--data", "evil:x")
    assert answer.returncode == 0 and trace.exists()


def test_data_that_only_a_manifest_names_are_no_plugin(tmp_path, trace) -> None:
    manifest = replace(choose("sample", images=3), data="evil:x")
    manifest.write(tmp_path / "pairs.json")
    budget = ("--goal", "untargeted", "--attack", "brusle", "--pixels", 2, "--queries", 5)
    command = ("evaluate", "--pairs", tmp_path / "pairs.json", *budget, "--out", tmp_path / "out")
    answer = run(*command)
    assert answer.returncode == 2 and "pairs.json names the data evil:x" in answer.stderr
    assert "say so with --data evil:x" in answer.stderr and answer.stderr.count("\n") == 1
    with pytest.raises(brusle.errors.InputError, match="names the data evil:x"):
        Manifest.read(tmp_path / "pairs.json").dataset()
    assert not trace.exists()
    assert run(*command, "--data", "evil:x").returncode == 0
    assert trace.exists()


def test_a_plan_says_that_it_runs_code(tmp_path, trace) -> None:
    plan = tmp_path / "plan.yaml"
    budget = "attacks: [brusle, evil]\ngoals: untargeted\npixels: 2\nqueries: 5\nlimit: 3\n"
    plan.write_text(f"victim: python:lying_here:make\ndefences: 'evil:1'\ndata: 'evil:x'\n{budget}")
    answer = run("evaluate", "--config", plan, "--out", tmp_path / "out")
    assert answer.returncode == 0, answer.stderr
    lines = answer.stderr.splitlines()
    place = Path("lying_here.py").resolve()
    code = f"which runs a function of Python (found in {place})"
    assert lines[:4] == [
        f"{plan} names the victim python:lying_here:make, {code}",
        f"{plan} names the defence evil:1, which runs the installed plugin evil_plugin:defence",
        f"{plan} names the data evil:x, which runs the installed plugin evil_plugin:data",
        f"{plan} names the attack evil, which runs the installed plugin evil_plugin:attack",
    ]
    given = (
        "--attack",
        "brusle",
        "--victim",
        "zoo:cifar10-resnet20",
        "--defence",
        "median:3",
        "--data",
        "sample",
    )
    answer = run("evaluate", "--config", plan, "--out", tmp_path / "other", *given)
    assert answer.returncode == 0 and "names the" not in answer.stderr


def test_a_plan_says_so_before_anything_is_run(tmp_path, trace) -> None:
    (Path("failing.py")).write_text("raise SystemError('run')")
    plan = tmp_path / "plan.yaml"
    plan.write_text("victim: python:failing:make\n")
    answer = run("evaluate", "--config", plan)
    first, second = answer.stderr.splitlines()
    assert first.startswith(f"{plan} names the victim") and "SystemError: run" in second


def test_every_kind_says_what_it_runs(trace) -> None:
    assert {kind for kind, about in REGISTRY.kinds.items() if not about.risk} == {
        "zoo",
        "torchvision",
        "efficientnet-lite",
        "checkpoint",
        "onnx",
    }
    assert victims.risk("zoo:cifar10-resnet20") == "" and data.risk("sample") == ""
    assert all(not defences.risk(name) for name in defences.DEFENCES)
    assert all(not attacks.risk(name) for name in attacks.ATTACKS)
    for risk in (victims.risk, data.risk, defences.risk, attacks.risk):
        assert "evil_plugin:" in risk("evil:1")
    assert not trace.exists()


def test_torchscript_does_write_files(tmp_path, monkeypatch) -> None:
    """Why its archives are not opened because a folder names them."""
    monkeypatch.chdir(tmp_path)

    class Writes(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            torch.save(images, "written")
            return images.flatten(1)[:, :10]

    torch.jit.save(torch.jit.script(Writes()), "program.pt")
    brusle.load_victim("torchscript:program.pt", "cpu")(torch.rand(1, 3, 4, 4))
    assert (tmp_path / "written").exists()


def test_photographs_are_framed_without_the_victim(tmp_path, trace) -> None:
    """What a report needs of the victim is stored with the run."""
    photographs = tmp_path / "photographs"
    for at, name in enumerate(("cat", "dog")):
        (photographs / name).mkdir(parents=True)
        torch.manual_seed(at)
        for number in range(2):
            save_image(torch.rand(3, 40, 52), photographs / name / f"{number}.png")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 16, 2))
    framing = Framing(20, (12, 16), "bicubic")
    options = {"shape": (3, 12, 16), "classes": ["cat", "dog"]}
    victim = replace(wrap(module, output="logits", **options), framing=framing)
    assert StoredTraits.of(victim).traits() == replace(
        traits(victim), differentiable=False, classes=("cat", "dog")
    )
    place = f"folder:{photographs}"
    done = brusle.evaluate(
        victim,
        place,
        [brusle.attacks.BruSLe(40, 60)],
        "untargeted",
        tmp_path / "run",
        on_warning=lambda _: None,
    )
    wins = sum(row["status"] == "success" for row in done.rows())
    assert wins > 0
    rename(tmp_path / "run", victim="python:lying_here:make")
    answer = run("export", tmp_path / "run", "--images", tmp_path / "images")
    assert answer.returncode == 0 and f"{wins} images written" in answer.stdout, answer.stderr
    assert run("report", tmp_path / "run").returncode == 0
    assert 'src="data:image/png' in (tmp_path / "run" / "report.html").read_text()
    assert not trace.exists()


@pytest.mark.parametrize(
    ("where", "pipe"),
    [
        ("npz:{}/images.npz", "images.npz"),
        ("folder:{}", "labels.csv"),
        ("imagenet:{}", "labels.csv"),
        ("folder:{}", "class/image.png"),
        ("stl10:test?dir={}", "test_X.bin"),
        ("cifar10:test?dir={}", "test_batch.bin"),
        ("cifar10:test?dir={}", "test_batch.png"),
    ],
)
def test_a_pipe_in_the_place_of_data_is_not_waited_for(where, pipe, folder, tmp_path) -> None:
    path = tmp_path / "data" / pipe
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    rename(folder, data=where.format(tmp_path / "data"))
    answer = run("export", folder, "--images", tmp_path / "images")
    assert answer.returncode == 2 and answer.stderr.count("\n") == 1, answer.stderr


@pytest.mark.parametrize(
    "victim",
    [
        "checkpoint:{}?arch=cifar-resnet20",
        "checkpoint:net.pt?arch=resnet18&classes={}",
        "onnx:{}",
        "torchvision:resnet18?weights=none&classes={}",
    ],
)
@pytest.mark.parametrize("special", ["pipe", "/dev/zero"])
def test_a_pipe_in_the_place_of_a_victim_is_not_waited_for(
    victim, special, folder, tmp_path
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    rename(folder, victim=victim.format(path if special == "pipe" else special))
    answer = run("verify", folder)
    assert answer.returncode in (2, 3) and answer.stderr.count("\n") == 1, answer.stderr


@pytest.mark.parametrize("name", [FILE, LOCK])
def test_a_pipe_in_the_place_of_the_store_is_not_waited_for(name, folder) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    for command in ("status", "report", "verify"):
        assert read(folder, command).returncode == (2 if name == FILE else 0)
    budget = ("--goal", "untargeted", "--attack", "brusle", "--pixels", 2, "--queries", 5)
    answer = run("evaluate", *budget, "--limit", 3, "--out", folder)
    assert answer.returncode == 2 and answer.stderr.count("\n") == 1, answer.stderr


def test_a_lock_that_is_a_link_is_not_followed(folder, tmp_path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (folder / LOCK).unlink()
    (folder / LOCK).symlink_to(mine)
    with pytest.raises(brusle.errors.DataError, match="results.lock is no plain file but a link"):
        Store.write(folder)
    assert mine.read_text() == "precious"


WRITTEN = ("rows.csv", "run.json", "pairs.json", "curve.png", "report.html", "adversarial")


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_nothing_is_written_through_what_lies_in_a_folder(name, kind, folder, tmp_path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    place = folder / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    if kind == "link":
        place.symlink_to(mine)
    else:
        os.mkfifo(place)
    budget = ("--goal", "untargeted", "--attack", "brusle", "--pixels", 2, "--queries", 5)
    commands = [("evaluate", *budget, "--limit", 3, "--out", folder)]
    if name == "report.html":
        commands.append(("report", folder))
    for command in commands:
        answer = run(*command)
        assert answer.returncode == 2 and answer.stderr.count("\n") == 1, answer.stderr
        assert f"{name} is no plain file" in answer.stderr
    assert mine.read_text() == "precious"


def test_a_run_folder_may_be_reached_by_a_link(folder, tmp_path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert run("report", tmp_path / "link").returncode == 0
    Store.write(tmp_path / "link").close()


def test_a_journal_that_names_another_file_is_not_played(folder, tmp_path) -> None:
    """SQLite would roll back, and then delete the file that the journal names."""
    mine = tmp_path / "mine"
    mine.write_text("precious")
    path, journal = folder / FILE, folder / f"{FILE}-journal"
    code = (
        "import os, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA journal_mode = DELETE')\n"
        "c.execute('PRAGMA cache_size = 1')\n"
        "c.execute('BEGIN')\n"
        "c.execute('UPDATE rows SET error = hex(zeroblob(3000))')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    name = os.fsencode(mine)
    with journal.open("ab") as file:
        page = (1 << 30) // 4096 + 1
        file.write(struct.pack(">I", page) + name + struct.pack(">II", len(name), sum(name)))
        file.write(bytes.fromhex("d9d505f920a163d7"))
    for command in (*READERS, "verify"):
        answer = read(folder, command)
        assert answer.returncode == 2 and "was not written by brusle" in answer.stderr
    with pytest.raises(brusle.errors.DataError, match="was not written by brusle"):
        Store.write(folder)
    assert mine.read_text() == "precious"


def test_views_and_triggers_are_not_run(folder) -> None:
    import sqlite3

    connection = sqlite3.connect(folder / FILE)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT MAX(i) FROM n"
    with connection:
        connection.execute("ALTER TABLE images RENAME TO kept")
        connection.execute(f"CREATE VIEW images AS SELECT ({endless}) AS name")
    connection.close()
    for command in (*READERS, "verify"):
        answer = read(folder, command)
        assert answer.returncode == 2 and "tables are not those that brusle makes" in answer.stderr
