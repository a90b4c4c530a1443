"""Run folders of 0.1, kept as they were written: they are read, verified and gone on with."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from entry import run as command
from stored import stored
from tampering import tamper

import brusle
from brusle.errors import DataError
from brusle.evaluation.record import FORMAT
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.storing.recheck import recheck
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import FILE, Store

KEPT = Path(__file__).parents[1] / "fixtures" / "runs-0.1"
RUNS = sorted(path.name for path in KEPT.iterdir())
OLD = "brusle-results-3"


@pytest.fixture(params=RUNS)
def folder(request, tmp_path) -> Path:
    return shutil.copytree(KEPT / request.param, tmp_path / request.param)


@pytest.fixture
def plain(tmp_path) -> Path:
    return shutil.copytree(KEPT / "plain", tmp_path / "plain")


def stated(folder: Path) -> str:
    connection = sqlite3.connect(folder / FILE)
    (found,) = connection.execute("SELECT value FROM about WHERE key = 'format'").fetchone()
    connection.close()
    return json.loads(found)


def in_order(rows) -> list[dict]:
    return sorted(
        rows, key=lambda row: json.dumps([row[k] for k in ("attack", "seed", "goal", "id")])
    )


def witness(folder: Path) -> list[dict]:
    return in_order(json.loads((folder / "rows.json").read_text()))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("frozen", [False, True])
def test_an_old_run_is_read_and_left_as_it_is(folder, frozen, monkeypatch) -> None:
    before = files(folder)
    monkeypatch.setattr("os.access", lambda _, mode: not (frozen and mode == os.W_OK))
    with Run.open(folder).store as store:
        assert in_order(Run(store, folder).rows()) == witness(folder)
        assert store.about().format == FORMAT
    assert json.loads(command("status", folder, "--json").stdout)["about"]["format"] == FORMAT
    assert files(folder) == before and stated(folder) == OLD


def test_an_old_run_is_verified(folder) -> None:
    found = recheck(folder, device="cpu")
    assert not found.failed and found.rows == found.sound == len(witness(folder))
    answer = command("verify", folder)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_names_become_lists_of_defences() -> None:
    about = Run.open(KEPT / "minimal-randomised").about
    assert (about.victim, about.defences) == ("zoo:cifar10-resnet20", ("rnd:0.02",))
    assert about.defended_victim == about.as_dict()["victim"] == "zoo:cifar10-resnet20 + rnd:0.02"
    assert about.traits.shape == (3, 32, 32) and about.traits.classes == about.classes


def test_nothing_is_added_to_results_of_other_random_numbers(plain) -> None:
    rows = stored(plain)
    answer = command("evaluate", "--limit", 1, "--out", plain)
    assert answer.returncode == 2 and answer.stderr.count("\n") == 1
    assert (
        "gets other rows from the same seed than this version: choose another --out"
        in answer.stderr
    )
    assert stored(plain) == rows


def test_nothing_of_an_old_run_is_run_again(folder, monkeypatch) -> None:
    """If this version drew the random numbers that 0.1 did."""
    monkeypatch.setattr("brusle.evaluation.running.introduction.RESULTS", 1)
    rows = stored(folder)
    plan = Plan.of(Run.open(folder).about.sessions[-1].plan)
    again = brusle.evaluate(plan, out=folder, device="cpu")
    assert again.resumed == len(rows) == len(witness(folder))
    assert again.preflight_queries == 0 and len(again.about.sessions) == 2
    assert stored(folder) == rows and stated(folder) == FORMAT
    with Store.read(folder) as store:
        assert len(store.settings()) == len({key[0] for key in rows})
    assert recheck(folder, device="cpu").failed is False


def test_a_newer_format_is_refused_in_one_line(plain) -> None:
    tamper(plain, "about", "key = 'format'", value='"brusle-results-9"')
    for arguments in (("status", plain), ("evaluate", "--limit", 1, "--out", plain)):
        answer = command(*arguments)
        assert answer.returncode == 2 and answer.stderr.count("\n") == 1
        assert f"format brusle-results-9, not {FORMAT}" in answer.stderr


DAMAGES = {
    "a fact": ("about", "key = 'victim'", {"value": '"zoo:other"'}, False, "fact 'victim'"),
    "a setting": ("settings", "id = 2", {"description": "{}"}, False, "setting 'PixelBandit("),
    "no JSON": ("about", "key = 'notes'", {"value": "[" * 100_000}, True, "fact 'notes' is no"),
    "a type": ("about", "key = 'shape'", {"value": "[3, 32]"}, True, "what it says about 'shape'"),
    "a victim": ("about", "key = 'victim'", {"value": "7"}, True, "what it says about 'victim'"),
    # when the last setting is found to be damaged, all others have been changed
    "a text": ("settings", "id = 8", {"description": "[]"}, True, "is none that brusle makes"),
    "a key": ("settings", "id = 8", {"key": "BruSLe"}, True, "is none that brusle makes"),
    "a seed": ("settings", "id = 8", {"key": "A() untargeted seed=x eot=1"}, True, "no number"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_old_run_is_refused_and_left_as_it_is(damage, plain) -> None:
    table, where, changes, sums, words = DAMAGES[damage]
    assert tamper(plain, table, where, sums=sums, **changes) == 1
    before = (plain / FILE).read_bytes()
    for opened in (Store.read, Store.write):
        with pytest.raises(DataError, match="is damaged or was changed") as found:
            opened(plain)
        assert words in str(found.value) and "\n" not in str(found.value)
    assert stated(plain) == OLD and (plain / FILE).read_bytes()[100:] == before[100:]


def test_a_damaged_row_of_an_old_run_is_still_seen(plain) -> None:
    tamper(plain, "rows", "setting = 1 AND status = 'failed'", sums=False, queries=7)
    with Store.write(plain) as store, pytest.raises(DataError, match="checksum does not fit"):
        store.rows(1)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("goal", "targeted", "its goal is 'targeted', and 'untargeted' by its key"),
        ("seed", 1, "its seed is 1, and 0 by its key"),
        ("pixels", 5, "its pixel budget is 5, and 4 by its key"),
        ("attack", "SparseRS", "its attack SparseRS is not that of its key"),
    ],
)
def test_a_setting_that_was_edited_in_an_old_run_is_still_seen(name, value, words, plain) -> None:
    connection = sqlite3.connect(plain / FILE)
    (text,) = connection.execute("SELECT description FROM settings WHERE id = 1").fetchone()
    connection.close()
    changed = json.dumps(json.loads(text) | {name: value})
    tamper(plain, "settings", "id = 1", description=changed)
    assert words in [mismatch.reason for mismatch in recheck(plain, device="cpu").mismatches]


HOSTILE = {
    "a call": "__import__('os').system('touch {trace}')",
    "an option": "BruSLe(pixels=open('{trace}', 'w'), queries=60)",
    "arithmetic": "BruSLe(pixels=10**10**10, queries=60)",
    "a text": "Restarts(attack=BruSLe(pixels=4, queries=1000000000000), times='x')",
    "deep": "BruSLe(pixels=" + "-" * 100_000 + "1)",
    "no Python": "<Mine object at 0x7f>",
    "another class": "Mine(pixels=4, queries=60, rate=0.5)",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_keys_are_data(kind, plain, tmp_path) -> None:
    trace = tmp_path / "trace"
    key = HOSTILE[kind].format(trace=trace)
    tamper(plain, "settings", "id = 1", key=f"{key} untargeted seed=0 eot=1")
    with Store.read(plain) as store:
        setting = store.settings()[0]
    assert (setting.attack, setting.pixels, setting.queries) == ("BruSLe", 4, 60)
    expected = {"rate": 0.5} if kind == "another class" else {"repr": key}
    assert setting.options == expected and not trace.exists()
