"""``brusle status``, ``brusle export`` and ``brusle verify`` as a script sees them."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from entry import run
from models import integer_model, own_labels, random_images
from tampering import tamper

import brusle
from brusle.attacks import BruSLe, SparseRS
from brusle.data import load, read_image
from brusle.evaluation.record import Setting
from brusle.evaluation.statistics.rates import Rate
from brusle.evaluation.storing.digest import rows_digest
from brusle.evaluation.storing.progress import look
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import Store
from brusle.locking import is_written


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """A run on arrays."""
    folder = tmp_path_factory.mktemp("small") / "run"
    model, images = integer_model((3, 8, 8), 4), random_images(10, (3, 8, 8))
    labels = own_labels(model, images)
    labels[0] = (labels[0] + 1) % 4  # not classified correctly, so not attacked
    brusle.evaluate(model.victim(), (images, labels), [BruSLe(3, 30), SparseRS(3, 9)], out=folder)
    return folder


@pytest.fixture(scope="module")
def bundled(tmp_path_factory) -> Path:
    """A run of the bundled victim on a few of the bundled images."""
    folder = tmp_path_factory.mktemp("bundled") / "run"
    attacks = [BruSLe(20, 25)]
    brusle.evaluate(attacks=attacks, goal="untargeted", out=folder, limit=10, batch_size=10)
    return folder


@pytest.fixture
def copy(bundled, tmp_path) -> Path:
    return Path(shutil.copytree(bundled, tmp_path / "run"))


def test_status_counts_what_is_stored(small) -> None:
    answer = run("status", str(small), "--json")
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    assert said["writing"] is False
    assert said["about"]["victim"] == "counting"
    rows = json.loads((small / "rows.json").read_text())
    assert len(said["settings"]) == 4
    for setting in said["settings"]:
        keys = {"attack": "attack", "goal": "goal", "pixels": "pixel_budget"}
        mine = [r for r in rows if all(r[theirs] == setting[key] for key, theirs in keys.items())]
        status = [row["status"] for row in mine]
        assert setting["counts"] == {s: status.count(s) for s in set(status)}
        assert setting["stored"] == setting["problems"] == len(mine) == 10
        assert setting["asr"] == Rate(status.count("success"), 9).as_dict()
        assert setting["counts"]["skipped"] == 1


def test_status_table_fits_80_columns(small) -> None:
    answer = run("status", str(small), "--watch", "60")  # nobody writes: one look is all
    assert answer.returncode == 0, answer.stderr
    assert "no run is writing" in answer.stdout and "victim counting" in answer.stdout
    assert "10/10" in answer.stdout and "SparseRS" in answer.stdout
    assert "unfinished" not in answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert "…" not in answer.stdout


def test_status_table_fits_with_large_numbers(tmp_path) -> None:
    about = {"pixels": 1000, "queries": 100_000, "seed": 3, "problems": 10_000, "needs": "scores"}
    with Store.write(tmp_path) as store:
        one = Setting(attack="minimal BruSLe x 12", kind="Minimal", goal="untargeted", **about)
        other = Setting(attack="Standard", kind="Ensemble", goal="targeted", eot=20, **about)
        last = other.model_copy(update={"eot": 1, "seed": 4})
        for setting in (one, other, last):
            store.add_setting(setting)
    answer = run("status", str(tmp_path))
    assert answer.returncode == 0, answer.stderr
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert "0/10000" in answer.stdout and "100000" in answer.stdout
    assert "an unfinished rate is too high" in answer.stdout
    assert "…" not in answer.stdout


def test_status_sees_a_run_that_writes(tmp_path) -> None:
    assert not is_written(tmp_path)
    with Store.write(tmp_path):
        assert is_written(tmp_path) and look(tmp_path)["writing"]
        assert look(tmp_path)["settings"] == []
    assert not is_written(tmp_path)
    with Store.write(tmp_path):
        pass  # looking has left no lock behind


def test_watch_ends_with_the_writer(tmp_path) -> None:
    store = Store.write(tmp_path)
    command = [sys.executable, "-c", "from brusle.cli import main; main()"]
    options = ["status", str(tmp_path), "--watch", "0.05", "--json"]
    watching = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    guard = threading.Timer(60, watching.kill)
    guard.start()
    try:
        assert json.loads(watching.stdout.readline())["writing"] is True
        assert json.loads(watching.stdout.readline())["writing"] is True
        store.close()
        rest = watching.stdout.read().splitlines()
    finally:
        guard.cancel()
    assert watching.wait() == 0
    assert [json.loads(line)["writing"] for line in rest[-1:]] == [False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("status", "missing"), "error: missing holds no run: give the folder of an evaluation"),
        (("verify", "missing"), "error: missing holds no run"),
        (("export", "missing", "--to", "a.csv"), "error: missing holds no run"),
        (("export", "missing"), "say what to write: --to, --images, --npz or --traces"),
        (("export", "missing", "--to", "a.txt"), "error: cannot write a.txt in the format of its"),
        (("export", "missing", "--npz", "a.csv"), "its name: name it .npz"),
        (("status", "missing", "--watch", "0"), "0.0 is not in the range 0<x<=86400"),
    ],
)
def test_bad_requests_get_one_line_and_exit_code_2(arguments, message) -> None:
    answer = run(*arguments)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr


def test_export_writes_rows_and_images_of_named_data(bundled, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--to", "rows.json", "--images", "images", "--npz", "a.npz", "--json")
    answer = run("export", str(bundled), *options)
    assert answer.returncode == 0, answer.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    fooled = [row for row in rows if row["status"] == "success"]
    counts = [(part["what"], part["count"]) for part in json.loads(answer.stdout)]
    assert counts == [("rows", 10), ("images", len(fooled)), ("images", len(fooled))]
    data = load("sample")
    originals = dict(zip(data.names, data.images, strict=True))
    for row in fooled:
        path = tmp_path / "images" / "01-brusle-untargeted-20-px" / f"{row['image']}.png"
        changed = (read_image(path) != originals[row["image"]]).any(0).nonzero().tolist()
        assert changed == [[edit["row"], edit["column"]] for edit in row["edits"]]


def test_verify_holds_until_a_row_is_changed(copy) -> None:
    answer = run("verify", str(copy))
    assert answer.returncode == 0, answer.stderr
    with Store.read(copy) as store:
        rows = [row for row in store.rows(1) if row.status == "success"]
    assert len(rows) > 2
    held = f"{len(rows)} of {len(rows)} successes hold (zoo:cifar10-resnet20)\n"
    digest = f"SHA-256 of the rows: {rows_digest(Run.open(copy))}\n"
    assert answer.stdout == held + "10 of 10 rows are as they were stored\n" + digest
    tamper(copy, "rows", f"problem = {rows[1].problem}", edits=b"", pixels=0)
    answer = run("verify", str(copy), "--json")
    assert answer.returncode == 3, answer.stderr
    said = json.loads(answer.stdout)
    assert (said["checked"], said["held"]) == (len(rows), len(rows) - 1)
    assert [mismatch["image"] for mismatch in said["mismatches"]] == [rows[1].image]
    answer = run("verify", str(copy))
    assert f"BruSLe untargeted, 20 px: {rows[1].image}: after an 8-bit PNG" in answer.stdout


def test_verify_refuses_another_victim(bundled) -> None:
    names = [name for name in brusle.zoo.names() if name != "cifar10-resnet20"]
    answer = run("verify", str(bundled), "--victim", f"zoo:{names[0]}")
    assert answer.returncode == 2
    assert "has weights" in answer.stderr and answer.stderr.count("\n") == 1


def test_verify_puts_the_defences_back(tmp_path) -> None:
    options = {"goal": "untargeted", "limit": 6, "batch_size": 6, "out": tmp_path / "run"}
    brusle.evaluate(attacks=[BruSLe(30, 15)], defences=["median:3", "rnd:0.05"], **options)
    answer = run("verify", str(tmp_path / "run"), "--json")
    assert answer.returncode == 0, answer.stderr  # a miss of a randomised victim is no failure
    said = json.loads(answer.stdout)
    assert said["victim"] == "zoo:cifar10-resnet20 + median:3 + rnd:0.05"
    assert said["randomised"] and said["checked"] > 0
    answer = run("verify", str(tmp_path / "run"))
    assert "hold in one fresh draw of a randomised victim" in answer.stdout


def test_arrays_need_data_for_images(small, tmp_path) -> None:
    answer = run("export", str(small), "--images", str(tmp_path / "out"))
    assert answer.returncode == 2
    assert "were arrays, which a run folder does not keep" in answer.stderr


def test_errors_are_counted_and_run_again(copy) -> None:
    with Store.read(copy) as store:
        before = {row.problem: (row.status, row.queries, row.edits) for row in store.rows(1)}
    reasons = {
        "error": "the victim raised HTTPError: HTTP Error 503: Service Unavailable",
        "unverified": "after an 8-bit PNG round trip the victim says class 3",
    }
    for problem, (status, reason) in zip(before, reasons.items(), strict=False):
        tamper(copy, "rows", f"problem = {problem}", status=status, error=reason)
    answer = run("status", str(copy))
    assert "1 failed for the victim's trouble: the same command runs them again" in answer.stdout
    assert "1 errors or unverified results: --retry-errors runs them again" in answer.stdout
    said = json.loads(run("status", str(copy), "--json").stdout)
    assert said["runs_again"] == {"same_command": 1, "retry_errors": 1}
    budget = ("--goal", "untargeted", "--pixels", 20, "--queries", 25, "--limit", 10)
    again = ("evaluate", *budget, "--attack", "brusle", "--out", copy, "--json")
    answer = run(*again)
    assert answer.returncode == 3 and json.loads(answer.stdout)["resumed"] == 9
    assert "--retry-errors runs them" in answer.stderr
    answer = run(*again, "--retry-errors")
    assert answer.returncode == 0 and json.loads(answer.stdout)["resumed"] == 9
    with Store.read(copy) as store:
        now = {row.problem: (row.status, row.queries, row.edits) for row in store.rows(1)}
        assert now == before
    said = json.loads(run("status", str(copy), "--json").stdout)
    assert said["runs_again"] == {"same_command": 0, "retry_errors": 0}
