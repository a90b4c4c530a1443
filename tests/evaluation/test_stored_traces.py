"""Traces in run folders: there if asked for, the same however a run went, and never trusted."""

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch
from entry import run as command
from models import integer_model, own_labels, random_images
from stored import stored
from tampering import tamper

import brusle
from brusle.errors import DataError
from brusle.evaluation.record import FORMAT
from brusle.evaluation.storing.recheck import recheck
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import FILE, Store

ATTACKS = (
    brusle.attacks.BruSLe(pixels=4, queries=40),
    brusle.attacks.PixelBandit(pixels=4, queries=40),
)


def evaluate(folder: Path, **options) -> Run:
    return brusle.evaluate(attacks=ATTACKS, goal="untargeted", limit=10, out=folder, **options)


def packed(folder: Path) -> dict[tuple[int, int], bytes]:
    with Store.read(folder) as store:
        return {
            (setting, problem): store.trace(setting, problem)
            for setting, problems in store.traced().items()
            for problem in problems
        }


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("traced") / "run"
    evaluate(folder, trace=True)
    return folder


@pytest.fixture
def copy(traced, tmp_path) -> Path:
    connection = sqlite3.connect(traced / FILE)
    (tmp_path / "copy").mkdir()
    connection.execute("VACUUM INTO ?", (str(tmp_path / "copy" / FILE),))
    connection.close()
    return tmp_path / "copy"


def test_a_trace_replayed_gives_exactly_the_stored_image(traced) -> None:
    run = Run.open(traced)
    count = 0
    for setting, result in zip(run.settings, run.results, strict=True):
        for at, row in enumerate(run.stored(setting)):
            trace = run.trace(setting, row)
            assert (trace is None) == (row.queries == 0)
            if trace is not None:
                original = result.problems.images[at]
                assert torch.equal(trace.image(-1, original), result.images[at])
                count += 1
    assert count > 10
    assert run.untraced == 0


def test_rows_are_the_same_and_nothing_is_kept_without_the_option(traced, tmp_path) -> None:
    plain = evaluate(tmp_path / "plain")
    assert stored(tmp_path / "plain") == stored(traced)
    assert packed(tmp_path / "plain") == {}
    setting = plain.settings[0]
    attacked = [row for row in plain.stored(setting) if row.queries]
    assert all(plain.trace(setting, row) is None for row in attacked)
    assert plain.untraced == sum(
        row.queries > 0 for each in plain.settings for row in plain.stored(each)
    )


def test_a_trace_takes_a_few_kilobytes(traced) -> None:
    sizes = [len(blob) for blob in packed(traced).values()]
    assert np.mean(sizes) < 5000
    assert max(sizes) < 12_000


def test_batches_and_interruptions_leave_traces_as_they_are(tmp_path) -> None:
    model, images = integer_model((3, 8, 8), 5), random_images(12, (3, 8, 8))
    rounds = 0

    def attacked(folder: Path, **options) -> dict[tuple[int, int], bytes]:
        data = (images, own_labels(model, images))
        brusle.evaluate(model.victim(), data, ATTACKS, "untargeted", folder, trace=True, **options)
        return packed(folder)

    def interrupt(setting, progress) -> None:
        nonlocal rounds
        rounds += 1
        if rounds in (3, 30, 55):
            raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            attacked(tmp_path / "run", batch_size=7, on_progress=interrupt)
    assert attacked(tmp_path / "run", batch_size=7) == attacked(tmp_path / "whole")


def test_what_was_stored_without_a_trace_is_told(tmp_path) -> None:
    words = ("evaluate", "--attack", "brusle", "--goal", "untargeted", "--pixels", "4")
    words += ("--queries", "20", "--limit", "10", "--out", tmp_path / "run")
    assert "without a trace" not in command(*words).stdout
    again = command(*words, "--trace").stdout
    assert "10 attacks were stored already" in again
    assert "were stored without a trace: to have all," in " ".join(again.split())
    assert "without a trace" not in command(*words).stdout


def test_the_options_of_the_commands(tmp_path) -> None:
    words = ("evaluate", "--attack", "brusle", "--goal", "untargeted", "--pixels", "4")
    words += ("--queries", "20", "--limit", "10", "--out", tmp_path / "run", "--trace")
    assert command(*words).returncode == 0
    told = command("export", tmp_path / "run", "--traces", tmp_path / "t.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    run = Run.open(tmp_path / "run")
    attacked = [row for row in run.stored(run.settings[0]) if row.queries]
    assert told.stdout.startswith(f"{len(attacked)} traces written to ")
    assert [line["image"] for line in lines] == [row.image for row in attacked]
    trace = run.trace(run.settings[0], attacked[0])
    assert lines[0]["improvements"] == trace.as_dict()["improvements"]
    wrong = command("export", tmp_path / "run", "--traces", tmp_path / "t.csv")
    assert wrong.returncode == 2
    assert ".jsonl" in wrong.stderr


def test_export_says_if_there_are_none(tmp_path) -> None:
    evaluate(tmp_path / "plain")
    told = command("export", tmp_path / "plain", "--traces", tmp_path / "t.jsonl")
    assert told.returncode == 2
    assert "has no traces: `brusle evaluate --trace` keeps them" in told.stderr
    assert not (tmp_path / "t.jsonl").exists()


def test_attack_writes_its_trace_and_books_the_same(tmp_path) -> None:
    data = brusle.data.load("sample")
    brusle.data.save_image(data.images[3], tmp_path / "x.png")
    words = ("attack", tmp_path / "x.png", "--pixels", "5", "--queries", "60", "--json")
    plain = json.loads(command(*words).stdout)
    told = json.loads(command(*words, "--trace", tmp_path / "x.json").stdout)
    assert told == plain
    trace = json.loads((tmp_path / "x.json").read_text())
    last = trace["improvements"][-1]
    assert last["query"] == plain["queries"] or plain["status"] == "failed"
    pixels: dict[int, list[int]] = {}
    for one in trace["improvements"]:
        for position in one["unset"]:
            del pixels[position]
        pixels |= {position: levels for position, *levels in one["set"]}
    shown = {edit["row"] * 32 + edit["column"]: edit["colour"] for edit in plain["edits"]}
    assert pixels == shown


def test_verify_reads_traces(copy) -> None:
    assert not recheck(copy).failed
    good = packed(copy)
    (setting, problem), other = next(iter(good)), list(good.values())[1]
    where = f"setting = {setting} AND problem = {problem}"
    tamper(copy, "traces", where, trace=other)
    found = recheck(copy)
    assert found.failed
    assert [m.reason for m in found.mismatches] == ["its trace does not end at its final image"]


@pytest.mark.parametrize(("trace", "sums"), [(b"junk", True), (b"junk", False), ("text", True)])
def test_damaged_traces_are_refused_and_listed(copy, trace, sums) -> None:
    tamper(copy, "traces", sums=sums, trace=trace)
    found = recheck(copy)
    assert found.failed
    assert all("trace" in mismatch.reason for mismatch in found.mismatches)
    run = Run.open(copy)
    attacked = next(row for row in run.stored(run.settings[0]) if row.queries)
    with pytest.raises(DataError, match="trace"):
        run.trace(run.settings[0], attacked)


def test_a_folder_of_before_traces_is_read_and_gone_on_with(copy, traced) -> None:
    connection = sqlite3.connect(copy / FILE)
    connection.execute("DROP TABLE traces")
    connection.execute("DROP TABLE sequence")  # which came later
    connection.commit()
    connection.close()
    tamper(copy, "about", "key = 'format'", value=json.dumps("brusle-results-5"))
    assert stored(copy) == stored(traced)
    assert packed(copy) == {}
    assert evaluate(copy, trace=True).resumed == 20
    connection = sqlite3.connect(copy / FILE)
    (stated,) = connection.execute("SELECT value FROM about WHERE key = 'format'").fetchone()
    connection.close()
    assert json.loads(stated) == FORMAT


@pytest.mark.ray
@pytest.mark.slow
def test_workers_keep_traces(tmp_path) -> None:
    run = evaluate(tmp_path / "run", trace=True, engine=brusle.Ray(workers=2))
    assert run.untraced == 0
    assert not recheck(tmp_path / "run").failed
