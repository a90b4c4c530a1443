"""Rows, settings and facts that somebody has changed: `brusle verify` notices each column."""

import json
import math
from dataclasses import fields

import numpy as np
import pytest
from entry import run
from tampering import tamper

from brusle.evaluation.record import Row
from brusle.evaluation.storing.recheck import recheck
from brusle.evaluation.storing.store import FILE, Store

pytestmark = pytest.mark.slow

SCORES = np.full(10, 0.5).tobytes()
FIELDS = [f.name for f in fields(Row)]

# column, status of the row, new value, words of the finding: by a hand that makes new checksums
CAREFUL = [
    ("problem", "success", 1, "is not what was attacked"),
    ("problem", "failed", 1, "is not what was attacked"),
    ("image", "success", "other", "image other of the run is not in sample"),
    ("image", "failed", "other", "image other of the run is not in sample"),
    ("label", "failed", 11, "is not what was attacked"),
    ("label", "success", -1, "a label that is none of its 10 scores"),
    ("target", "success", 3, "its target is 3, and its goal untargeted"),
    ("target", "failed", 0, "its target is 0, and its goal untargeted"),
    ("status", "success", "failed", "it is stable, and its status failed"),
    ("status", "success", "skipped", "it was not attacked, and its"),
    ("status", "success", "error", "its status is error, and its error ''"),
    ("status", "success", "unverified", "its status is unverified, and its error ''"),
    ("status", "failed", "success", "a success that is not stable"),
    ("status", "skipped", "failed", "its status is failed, and its clean label"),
    ("status", "failed", "won", "its status is none that there is"),
    ("stable", "success", 0, "a success that is not stable"),
    ("stable", "failed", 1, "it is stable, and its status failed"),
    ("stable", "success", 2, "its stable is no bool"),
    ("queries", "success", 999, "999 queries, and 25 are allowed"),
    ("queries", "failed", 24, "24 queries, but"),
    ("queries", "failed", "many", "its queries is no int"),
    ("queries", "skipped", 1, "it was not attacked, and its queries are 1"),
    ("clean", "success", 0, "0 answers to the clean image, and 1 are asked for"),
    ("clean", "failed", 2, "2 answers to the clean image, and 1 are asked for"),
    ("initial", "success", -1, "its initial are -1"),
    ("initial", "failed", 1, "but 1 initial"),
    ("search", "failed", 999, "and 999 search"),
    ("verify", "success", 2, "2 answers to verify it, and 1 are asked for"),
    ("verify", "failed", 1, "1 answers to verify it, and 0 are asked for"),
    ("lost", "success", -1, "its lost are -1"),
    ("backward", "success", 3, "3 gradients in"),
    ("pixels", "success", 1, "stored edits, and its row says 1 pixels"),
    ("pixels", "failed", 99, "stored edits, and its row says 99 pixels"),
    ("pixels", "skipped", 1, "it was not attacked, and its pixels are 1"),
    ("clean_label", "success", 11, "its status is success, and its clean label 11"),
    ("clean_label", "failed", -1, "its status is failed, and its clean label -1"),
    ("clean_label", "skipped", -1, "it was not attacked, and its clean and final labels are -1"),
    ("final_label", "success", -1, "a label that is none of its 10 scores"),
    ("final_label", "failed", 10, "a label that is none of its 10 scores"),
    ("loss", "success", -5.5, "its loss of -5.5 does not follow from its scores"),
    ("loss", "failed", 0.125, "its loss of 0.125 does not follow from its scores"),
    ("loss", "skipped", 0.0, "it was not attacked, and its loss is 0"),
    ("scores", "failed", b"\0" * 79, "its scores are damaged"),
    ("scores", "failed", SCORES, "does not follow from its scores"),
    ("scores", "success", SCORES, "does not follow from its scores"),
    ("edits", "success", b"", "has 0 stored edits"),
    ("edits", "failed", b"\0" * 14, "the stored edits of image"),
    ("error", "success", "oh", "its status is success, and its error 'oh'"),
    ("error", "failed", "oh", "its status is failed, and its error 'oh'"),
    ("seconds", "failed", -1.0, "its seconds are -1.0"),
    ("seconds", "failed", math.inf, "its seconds are inf"),
]


def one(folder, status: str) -> Row:
    with Store.read(folder) as store:
        return next(row for row in store.rows(1) if row.status == status)


@pytest.mark.parametrize(("column", "status", "value", "words"), CAREFUL)
def test_a_changed_column_contradicts_the_others(column, status, value, words, folder) -> None:
    row = one(folder, status)
    where = f"setting = 1 AND problem = {row.problem}"
    assert tamper(folder, "rows", where, **{column: value}) == 1
    found = recheck(folder)
    assert found.failed
    (mismatch,) = found.mismatches
    assert words in mismatch.reason
    assert mismatch.setting == 1 and mismatch.image == (value if column == "image" else row.image)
    answer = run("verify", folder)
    assert answer.returncode == 3 and mismatch.reason in answer.stdout and answer.stderr == ""
    assert f"{found.rows - 1} of {found.rows} rows are as they were stored" in answer.stdout


def test_every_column_but_one_is_recomputed() -> None:
    """What an attack of an ensemble found, a checksum alone can tell."""
    assert set(FIELDS) - {column for column, *_ in CAREFUL} == {"found_by"}


@pytest.mark.parametrize("status", ["success", "failed", "skipped"])
@pytest.mark.parametrize("column", FIELDS)
def test_a_changed_column_does_not_fit_the_checksum(column, status, folder) -> None:
    row = one(folder, status)
    old = getattr(row, column)
    new = {int: 7, bool: 1 - row.stable, str: f"{old}x", float: 0.25, bytes: b"12345678"}
    value = "failed" if column == "status" else new.get(type(old), 7)
    if value == old:
        value = "error" if column == "status" else 8
    where = f"setting = 1 AND problem = {row.problem}"
    assert tamper(folder, "rows", where, sums=False, **{column: value}) == 1
    found = recheck(folder)
    assert len(found.mismatches) == 1 and "its checksum does not fit" in found.mismatches[0].reason
    for command in ("status", "report", "compare"):
        answer = run(command, folder)
        assert answer.returncode == 2 and answer.stderr.count("\n") == 1
        assert "is damaged or was changed: image" in answer.stderr


def test_final_labels_and_scores_are_asked_for(folder) -> None:
    """Scores and label that agree with each other, and not with the victim."""
    row = one(folder, "success")
    label = next(c for c in range(10) if c not in (row.label, row.final_label))
    scores = np.frombuffer(row.scores).copy()
    scores[[label, row.final_label]] = scores[[row.final_label, label]]
    where = f"setting = 1 AND problem = {row.problem}"
    tamper(folder, "rows", where, final_label=label, scores=scores.tobytes())
    (mismatch,) = recheck(folder).mismatches
    assert "the victim's scores differ by" in mismatch.reason


def test_a_row_of_another_setting_is_found(folder) -> None:
    row = one(folder, "failed")
    where = f"setting = 1 AND problem = {row.problem}"
    tamper(folder, "rows", where, sums=False, setting=3)
    assert "its checksum does not fit" in recheck(folder).mismatches[0].reason
    tamper(folder, "rows", f"setting = 3 AND problem = {row.problem}", setting=9)
    answer = run("verify", folder)
    assert answer.returncode == 2 and "rows of a setting that it does not have" in answer.stderr


SETTINGS = [
    ({"attack": "SparseRS"}, "its attack SparseRS is not that of its key"),
    ({"goal": "targeted"}, "its goal is 'targeted', and 'untargeted' by its key"),
    ({"seed": 1}, "its seed is 1, and 0 by its key"),
    ({"eot": 2}, "its eot is 2, and 1 by its key"),
    ({"pixels": 21}, "its pixel budget is 21, and 20 by its key"),
    ({"queries": 26}, "its query limit is 26, and 25 by its key"),
    ({"options": {"colours": 2}}, "its option colours is 2, and None by its key"),
    ({"options": {"palette": "uniform"}}, "its option palette is 'uniform', and None by its key"),
]


@pytest.mark.parametrize(("change", "words"), SETTINGS)
def test_a_setting_must_agree_with_its_key(change, words, folder) -> None:
    with Store.read(folder) as store:
        key, record = next(iter(store.settings_by_key().items()))
    described = record.model_dump(exclude={"number"})
    described |= change | {"options": record.options | change.get("options", {})}
    tamper(folder, "settings", "id = 1", description=json.dumps(described))
    answer = run("verify", folder)
    assert answer.returncode == 3 and words in answer.stdout, answer.stdout
    tamper(folder, "settings", "id = 1", sums=False, description=json.dumps(described) + " ")
    answer = run("verify", folder)
    assert answer.returncode == 2 and "its checksum does not fit" in answer.stderr
    assert key in answer.stderr


FACTS = [
    ("randomised", True, 3, "what it says about 'randomised' is not so"),
    ("classes", ["x"] * 10, 3, "what it says about 'classes' is not so"),
    (
        "traits",
        {"framing": None, "shape": None, "classes": None},
        3,
        "what it says about 'traits' is not so",
    ),
    ("weights", "feed", 2, "the run had feed: give the victim of the run"),
    ("shape", [3, 32, 33], 2, "images of sample are 3 x 32 x 33"),
    ("victim", "zoo:cifar10-vit", 2, "cifar10"),
]


@pytest.mark.parametrize(("name", "value", "code", "words"), FACTS)
def test_facts_must_be_those_of_victim_and_data(name, value, code, words, folder) -> None:
    tamper(folder, "about", f"key = '{name}'", value=json.dumps(value))
    answer = run("verify", folder)
    assert answer.returncode == code, answer
    assert words in answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("about", "value", '"other"'),
        ("settings", "description", "{}"),
        ("settings", "key", "other"),
        ("images", "label", 99),
        ("images", "sha256", "0"),
    ],
)
def test_other_tables_have_checksums_too(table, column, value, folder) -> None:
    where = {"about": "key = 'data'", "settings": "id = 1"}.get(table, "name = 'test-0001'")
    assert tamper(folder, table, where, sums=False, **{column: value}) == 1
    answer = run("verify", folder)
    assert answer.returncode == 2 and answer.stderr.count("\n") == 1
    assert "is damaged or was changed" in answer.stderr and FILE in answer.stderr
