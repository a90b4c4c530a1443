"""``evaluate --until-decided``: no image that the verdict does not need, and the same rows."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from entry import run as command
from models import Counting, integer_model, own_labels, random_images
from stored import stored

import brusle
from brusle.errors import DataError, InputError, VictimUnavailable
from brusle.evaluation import Gate, Run, gate
from brusle.evaluation.gating.counts import Robust
from brusle.evaluation.running.shards import ShardSupply
from brusle.evaluation.storing.store import Store

ATTACK = brusle.attacks.BruSLe(pixels=1, queries=6)
IMAGES = random_images(120, (3, 8, 8), seed=4)
ASKED = Gate.of("1px,6q", 75)


def model() -> Counting:
    return integer_model((3, 8, 8), 4)


def evaluate(out: Path | None, asked: Gate | None = ASKED, n: int = 120, **more: Any) -> Run:
    """About 56 % of the images are robust, so to see that it is not 75 % takes a while."""
    victim = (more.pop("model", None) or model()).victim()
    if "patience" in more:
        victim = dataclasses.replace(victim, patience=more.pop("patience"))
    labels = own_labels(model(), IMAGES)
    labels[::10] = (labels[::10] + 1) % 4
    more = {"attacks": ATTACK, "goal": "untargeted", "until": asked, "on_progress": None} | more
    return brusle.evaluate(victim, (IMAGES[:n], labels[:n]), out=out, **more)


def first_decision(run: Run, asked: Gate = ASKED) -> int | None:
    """After how many images a verdict was there, by another way: one by one over the plain rows."""
    whole = evaluate(None, None)
    (rows,) = (whole.stored(setting) for setting in whole.settings)
    fates = {row.image: row.status == "failed" for row in rows}
    counts = Robust(asked.min_robust[0] / 100, asked.alphas, in_turn=True)
    for number, name in enumerate(run.store.sequence(), 1):
        counts.add(fates[name])
        if counts.result() != "undecided":
            return number
    return None


@pytest.fixture(scope="module")
def decided(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "decided"
    evaluate(folder)
    return folder


def test_it_stops_after_the_very_image_that_decides(decided) -> None:
    run = Run.open(decided)
    verdict = gate(run, "1px,6q", 75)
    assert verdict.result == "fail" and verdict.answers[0].in_turn
    assert len(stored(decided)) == len(run.store.sequence()) == verdict.answers[0].images
    assert first_decision(run) == verdict.answers[0].images < 100
    assert run.settings[0].problems == run.images == verdict.answers[0].images
    assert run.about.sessions[-1].until == tuple(ASKED.told())


def test_rows_are_those_of_a_run_of_all_images(decided, tmp_path) -> None:
    evaluate(tmp_path / "whole", None)
    whole = stored(tmp_path / "whole")
    mine = stored(decided)
    assert 0 < len(mine) < len(whole)
    assert all(whole[key] == row for key, row in mine.items())


def test_the_order_is_random_and_follows_from_the_seed(decided, tmp_path) -> None:
    names = Run.open(decided).store.sequence()
    assert names != sorted(names) and max(int(name.split("-")[-1]) for name in names) > len(names)
    again = evaluate(tmp_path / "again", batch_size=3)
    assert again.store.sequence() == names
    other = evaluate(tmp_path / "other", seed=1)
    assert other.store.sequence()[:10] != names[:10]


class Threads:
    """An engine that attacks one problem at a time, the last first."""

    def run(self, supply: ShardSupply, sink: Any) -> None:
        from functools import partial

        from brusle.evaluation.running.engines import attack

        for wave in supply.waves():
            for shard in reversed([*wave.shards(1)]):
                attack(wave.victim, shard, partial(sink.keep, shard))


def test_the_images_do_not_depend_on_who_does_the_work(decided, tmp_path) -> None:
    evaluate(tmp_path / "reversed", engine=Threads())
    assert stored(tmp_path / "reversed") == stored(decided)
    sequences = [Run.open(f).store.sequence() for f in (decided, tmp_path / "reversed")]
    assert sequences[0] == sequences[1]


class Mortal(Counting):
    """Gone after so many images."""

    def __init__(self, most: int) -> None:
        super().__init__(model().function)
        self.most = most

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        if self.seen + len(images) > self.most:
            raise ConnectionRefusedError(111, "gone")
        return super().__call__(images)


@pytest.mark.parametrize("most", [90, 150, 200])
def test_the_same_call_goes_on_and_ends_at_the_same_image(decided, tmp_path, most) -> None:
    few = brusle.Patience(waits=0)
    with pytest.raises(VictimUnavailable):
        evaluate(tmp_path, model=Mortal(most), patience=few, batch_size=2)
    rows = stored(tmp_path)
    assert gate(tmp_path, "1px,6q", 75).result == "undecided"
    run = evaluate(tmp_path)
    assert stored(tmp_path) == stored(decided) and run.resumed == len(rows) < len(stored(decided))


def test_a_decided_run_asks_nothing_more(decided) -> None:
    victim = model()
    run = evaluate(decided, model=victim)
    assert run.resumed == len(stored(decided)) and victim.seen == 0
    with pytest.raises(DataError, match="go on with --until-decided"):
        evaluate(decided, None)


def test_more_images_are_added_behind_those_that_were_asked(tmp_path) -> None:
    few = evaluate(tmp_path / "run", n=6)
    assert gate(few, "1px,6q", 75).result == "undecided"
    before = few.store.sequence()
    few.store.close()
    more = evaluate(tmp_path / "run", n=120)
    assert more.store.sequence()[: len(before)] == before
    assert gate(more, "1px,6q", 75).result == "fail"
    assert len(more.store.sequence()) == first_decision(more)


def test_images_that_could_not_decide_any_more_are_not_attacked(tmp_path) -> None:
    asked = Gate.of("1px,6q", 97.9)  # which takes more than a hundred images without exception
    run = evaluate(tmp_path, asked, n=7)
    found = Robust(0.979, asked.alphas, in_turn=True)
    assert found.fewest("pass", 200) > 7
    fates = gate(run, "1px,6q", 97.9).answers[0]
    assert fates.result in ("undecided", "fail") and fates.images <= 7
    best = evaluate(tmp_path / "none", Gate.of("1px,6q", 60, confidence=99.9999), n=5)
    assert best.store.sequence() == [] and gate(best, "1px,6q", 60).answers[0].images == 0


def test_a_folder_with_other_results_is_refused(tmp_path) -> None:
    evaluate(tmp_path, None, n=5)
    with pytest.raises(DataError, match="were not made with --until-decided.*another --out"):
        evaluate(tmp_path)


def test_errors_are_unknown_and_may_be_run_again(tmp_path) -> None:
    class Flaky(Counting):
        def __call__(self, images: torch.Tensor) -> torch.Tensor:
            scores = super().__call__(images)
            return torch.where((images[:, 0, 0, 0] > 0.85)[:, None], torch.nan, scores)

    asked = Gate.of("1px,6q", 40)
    run = evaluate(tmp_path, asked, model=Flaky(model().function), batch_size=4)
    answer = gate(run, "1px,6q", 40).answers[0]
    assert answer.unknown > 0 and answer.images == len(run.store.sequence())
    run.store.close()
    again = evaluate(tmp_path, asked, retry_errors=True)
    repaired = gate(again, "1px,6q", 40).answers[0]
    assert repaired.unknown == 0 and repaired.result == "pass"
    assert repaired.images <= answer.images


def test_all_attacks_and_targets_of_the_plan_are_run_on_each_image(tmp_path) -> None:
    attacks = [ATTACK, brusle.attacks.SparseRS(pixels=1, queries=6)]
    run = evaluate(
        tmp_path, Gate.of("1px,6q", 90), attacks=attacks, goal=["untargeted", "targeted"],
        targets=2, n=60,
    )  # fmt: skip
    names = set(run.store.sequence())
    for setting in run.settings:
        rows = run.stored(setting)
        assert {row.image for row in rows} == names
        assert len(rows) == setting.problems == len(names) * (1 if rows[0].target is None else 2)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Gate.of("3px,12q", 60), "the plan has no attack with 3 pixels"),
        (Gate.of("1px,7q", 60), "had 6 queries"),
        (Gate.of("1px", max_drop=5), "leave --max-drop to"),
        (Gate.of("1px", 60, goal="targeted"), "no targeted attack"),
    ],
)
def test_a_gate_that_the_plan_cannot_decide_is_refused_before_anything_is_asked(
    tmp_path, asked, reason
) -> None:
    victim = model()
    with pytest.raises(InputError, match=reason):
        evaluate(tmp_path / "run", asked, model=victim)
    assert victim.seen == 0 and not (tmp_path / "run").exists()


def test_several_conditions_are_decided_together(tmp_path) -> None:
    attacks = [brusle.attacks.BruSLe(pixels=p, queries=6) for p in (1, 2)]
    asked = Gate.of(["1px,6q", "2px,6q"], [35, 15])
    run = evaluate(tmp_path, asked, attacks=attacks)
    verdict = gate(run, ["1px,6q", "2px,6q"], [35, 15])
    assert verdict.result == "pass"
    assert max(answer.images for answer in verdict.answers) == len(run.store.sequence())


def test_the_command_says_the_verdict_and_leaves_the_judging_to_gate(tmp_path) -> None:
    words = ["--goal", "untargeted", "--pixels", 5, "--queries", 40, "--attack", "brusle"]
    gated = ["--at", "5px,40q", "--min-robust", 70]
    out = tmp_path / "run"
    done = command("evaluate", *words, *gated, "--until-decided", "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"]["result"] == "fail" and found["images"] < 60
    assert found["until"][0].startswith("robust accuracy of at least 70 % at 5px,40q")
    assert command("gate", out, *gated).returncode == 4
    assert command("gate", out, "--at", "5px,40q", "--min-robust", 5).returncode in (0, 5)
    status = json.loads(command("status", out, "--json").stdout)["settings"][0]
    assert status["stored"] == status["problems"] == found["images"]
    assert command("report", out, "--out", tmp_path / "report.md").returncode == 0
    assert "Unfinished" not in (tmp_path / "report.md").read_text()
    sound = command("verify", out, "--json")
    assert sound.returncode == 0, sound.stderr


def test_the_command_takes_all_images_unless_told_and_a_folder_of_its_own(tmp_path) -> None:
    words = ["evaluate", "--dry-run", "--json", "--goal", "untargeted", "--pixels", 5]
    gated = ["--until-decided", "--at", "5px", "--min-robust", 60]
    plain, until, few = (
        json.loads(command(*words, *more).stdout) for more in ([], gated, [*gated, "--limit", 7])
    )
    assert (plain["images"], until["images"], few["images"]) == (100, 200, 7)
    assert until["folder"].endswith("-until") and not plain["folder"].endswith("-until")
    plan = tmp_path / "plan.yaml"
    plan.write_text("limit: 9\npixels: 5\ngoals: untargeted\n")
    named = command("evaluate", "--dry-run", "--json", "--config", plan, *gated)
    assert json.loads(named.stdout)["images"] == 9
    assert command("evaluate", "--at", "5px", "--min-robust", 60).returncode == 2
    assert command("evaluate", "--until-decided").returncode == 2


def test_folders_of_the_format_before_are_read_and_continued(tmp_path) -> None:
    """A run of the version before has no sequence, and one session without ``until``."""
    import sqlite3
    from contextlib import closing

    from brusle.database import with_checksum

    evaluate(tmp_path, None, n=5).store.close()
    rows = stored(tmp_path)
    with closing(sqlite3.connect(tmp_path / "results.sqlite")) as connection, connection:
        connection.execute("DROP TABLE sequence")
        (text,) = connection.execute("SELECT value FROM about WHERE key = 'sessions'").fetchone()
        sessions = [{k: v for k, v in s.items() if k != "until"} for s in json.loads(text)]
        for name, value in (("sessions", sessions), ("format", "brusle-results-6")):
            connection.execute(
                "INSERT OR REPLACE INTO about VALUES (?, ?, ?)",
                with_checksum(name, json.dumps(value)),
            )
    assert stored(tmp_path) == rows and gate(tmp_path, "1px", 60).answers[0].images == 5
    evaluate(tmp_path, None, n=6)
    with Store.read(tmp_path) as store:
        assert store.about().format == "brusle-results-7" and store.sequence() == []
    assert len(stored(tmp_path)) == 6


@pytest.mark.slow
@pytest.mark.ray
def test_workers_attack_the_same_images(tmp_path) -> None:
    options = ["--goal", "untargeted", "--pixels", "5", "--queries", "30", "--attack", "brusle"]
    options += ["--until-decided", "--at", "5px,30q", "--min-robust", "60"]
    for name, more in (("one", []), ("two", ["--workers", "2"])):
        subprocess.run(
            [sys.executable, "-c", "from brusle.cli import main; main()", "evaluate", *options,
             "--out", tmp_path / name, *more],
            check=True, capture_output=True,
        )  # fmt: skip
    # workers have other batches, and scores of a net other last digits
    one, two = (stored(tmp_path / name) for name in ("one", "two"))
    assert one.keys() == two.keys()
    for key, row in one.items():
        assert (row.status, row.queries, row.edits) == (
            two[key].status,
            two[key].queries,
            two[key].edits,
        )
