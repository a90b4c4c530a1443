"""What trackers are told: numbers that can be counted by hand, under names that cannot collide."""

import json
import re
import sys

import pytest
from entry import run as command
from stored import stored
from stores import make_run, minimal, needing, row, rows_of, setting

import brusle
from brusle.errors import DataError, InputError
from brusle.evaluation.statistics import Rate
from brusle.evaluation.storing.digest import rows_digest
from brusle.report.tracking import log, open_trackers, trackers
from brusle.report.tracking.entries import _MOST_POINTS, entries_of
from brusle.report.tracking.keys import prefixes, word
from brusle.report.tracking.logged import Logged

ALLOWED = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")  # of all three trackers
EVIL = (
    "../../etc/passwd",
    "a/b",
    "=cmd|'x'!A0",
    "\x1b[31mred",
    "",
    ".",
    "katze\N{SNOWMAN}",
    "x" * 999,
)


class Recording:
    """A tracker that remembers, or fails."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.seen = error, []

    def write(self, entries):
        if self.error is not None:
            raise self.error
        self.seen.append(entries)
        return Logged("mine", "here", entries.run, new=True)


@pytest.fixture
def tracker(monkeypatch):
    found = Recording()
    kind = trackers._Kind(lambda name: found, {})
    monkeypatch.setitem(trackers._KINDS, "mine", kind)
    return found


def entries(run):
    with entries_of(run) as found:
        return found


def test_series_are_the_rates_at_every_number_of_queries(tmp_path) -> None:
    rows = [*rows_of([10, 30], 1), row(3, "unverified", 20), row(4, "skipped", 0)]
    found = entries(make_run(tmp_path, [(setting(), rows)]))
    begin = "BruSLe/untargeted/5px/100q"
    assert found.series[f"{begin}/asr"] == [(0, 0.0), (10, 0.25), (30, 0.5), (100, 0.5)]
    robust = [(0, 0.8), (10, 0.6), (20, 0.4), (30, 0.2), (100, 0.2)]
    assert dict(found.series[f"{begin}/robust_accuracy"]) == pytest.approx(dict(robust))
    low, high = Rate(2, 4).interval
    assert found.series[f"{begin}/asr_low"][-1] == (100, low)
    assert found.series[f"{begin}/asr_high"][-1] == (100, high)
    assert found.scalars[f"{begin}/asr"] == 0.5 and found.metrics["clean_accuracy"] == 0.8
    low, high = Rate(4, 5).interval
    ends = [found.metrics[f"clean_accuracy_{end}"] for end in ("low", "high")]
    assert ends == [low, high]
    assert found.metrics[f"{begin}/unverified"] == 1 and found.metrics[f"{begin}/errors"] == 0


def test_a_search_for_the_fewest_pixels_has_a_series_over_pixels(tmp_path) -> None:
    found = entries(make_run(tmp_path, [(minimal(), needing([2, 4], 2))]))
    (key,) = [key for key in found.series if key.endswith("_by_pixels")]
    assert found.series[key] == [(n, {0: 1, 1: 1, 2: 0.75, 3: 0.75}.get(n, 0.5)) for n in range(9)]
    begin = key.rpartition("/")[0]
    assert found.metrics[f"{begin}/asr"] == 0.5
    assert found.metrics[f"{begin}/pixels_needed_median"] == 4
    assert f"{begin}/median_queries" not in found.metrics  # there is none
    assert not any("asr" in key for key in found.series)


def test_long_curves_are_thinned_and_keep_their_ends(tmp_path) -> None:
    rows = rows_of(range(1, 2 * _MOST_POINTS), 1, 5000)
    found = entries(make_run(tmp_path, [(setting(queries=5000), rows)]))
    points = found.series["BruSLe/untargeted/5px/5000q/asr"]
    assert len(points) == len({step for step, _ in points}) == _MOST_POINTS
    assert points[0] == (0, 0) and points[-1] == (5000, (2 * _MOST_POINTS - 1) / (2 * _MOST_POINTS))
    assert all(value == pytest.approx(step / (2 * _MOST_POINTS)) for step, value in points[:-1])


def test_parameters_say_what_was_asked_for(tmp_path) -> None:
    made = setting("SparseRS", options={"alpha": 0.5}, seed=3)
    run = make_run(tmp_path, [(made, rows_of([1], 1))], defences=["rnd:0.1"])
    found = entries(run).parameters
    expected = {
        "victim": "zoo:toy + rnd:0.1",
        "weights": "feed",
        "data": "arrays",
        "images": "2",
        "pairs": "0123456789abcdef",
        "software/brusle": "1.2.3",
        "software/torch": "9.9",
        "rows_sha256": rows_digest(run),
        "SparseRS/untargeted/5px/100q/seed3/options": '{"alpha": 0.5}',
        "SparseRS/untargeted/5px/100q/seed3/seed": "3",
    }
    assert {name: found.get(name) for name in expected} == expected


def test_the_same_setting_has_the_same_key_in_every_run(tmp_path) -> None:
    one = setting("SparseRS")
    alone = prefixes([one.model_copy(update={"number": 1})])[1]
    among = prefixes([setting(number=1), one.model_copy(update={"number": 7})])[7]
    assert alone == among == "SparseRS/untargeted/5px/100q"


def test_settings_that_would_be_called_the_same_are_not() -> None:
    alike = [
        setting("Mine", number=1, options={"a": 1}),
        setting("Mine", number=2, options={"a": 2}),
        setting("mine", number=3),  # also where capitals do not count
        setting("Mine", number=4, pixels=6),
        setting("Mine", number=5, eot=3, seed=1),
        setting("Mine", number=6, success="absent"),
    ]
    found = prefixes(alike)
    assert len({key.casefold() for key in found.values()}) == len(alike)
    assert found == prefixes(alike) and found[4] == "Mine/untargeted/6px/100q"
    assert found[5].endswith("/eot3/seed1") and found[6].endswith("/success-absent")


def test_hostile_names_become_keys_that_are_valid_and_different() -> None:
    words = [word(name) for name in EVIL]
    assert len(set(words)) == len(EVIL)
    for name in EVIL:
        key = prefixes([setting(name, number=1)])[1]
        assert ALLOWED.fullmatch(key) and len(key) < 200
        assert not {".", ".."} & set(key.split("/"))
    assert word("a b") != word("a-b") == "a-b"


def test_hostile_names_are_shown_in_parameters(tmp_path) -> None:
    run = make_run(tmp_path, [(setting("\x1b]0;x\x07" * 200), rows_of([1], 1))])
    for name, value in entries(run).parameters.items():
        assert ALLOWED.fullmatch(name) and value.isprintable() and len(value) <= 500


def test_nothing_stored_is_nothing_to_log(tmp_path, tracker) -> None:
    with pytest.raises(InputError, match="no attack is stored in"):
        log(make_run(tmp_path, [(setting(), [])]), "mine")
    assert tracker.seen == []


def test_a_run_is_the_same_run_with_more_rows_and_in_another_folder(tmp_path) -> None:
    less = entries(make_run(tmp_path / "a", [(setting(problems=4), rows_of([1], 1))]))
    more = entries(make_run(tmp_path / "b", [(setting(problems=4), rows_of([1, 2], 2))]))
    other = entries(make_run(tmp_path / "c", [(setting(), rows_of([1], 1))], weights="beef"))
    assert less.run == more.run != other.run
    assert less.version == other.version != more.version
    assert not less.finished and more.finished


def test_the_hash_of_the_rows_is_of_what_was_found_and_not_of_the_machine(tmp_path) -> None:
    def digest(name, *rows, **about):
        return rows_digest(make_run(tmp_path / name, [(setting(), rows)], **about))

    base = digest("base", row(0), row(1))
    assert digest("order", row(1), row(0)) == base
    slower = [row(i, seconds=9.0, loss=1.0, scores=b"12345678") for i in range(2)]
    assert digest("machine", *slower) == base
    changes = {"status": "failed", "queries": 11, "edits": b"x", "final_label": 0, "error": "x"}
    found = {digest(name, row(0), row(1, **{name: x})) for name, x in changes.items()}
    assert len(found | {base, digest("one", row(0))}) == len(changes) + 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mlfow", "unknown tracker 'mlfow': did you mean 'mlflow'?"),
        ("mine?x=1", "'mine?x=1' has no option 'x'"),
        ("mlflow?experimnt=a", "has no option 'experimnt': did you mean 'experiment'?"),
        ("mlflow:postgresql://h/db", "is no place that brusle logs to"),
        ("mlflow:file:///tmp/x", "is no place that brusle logs to"),
        ("wandb?mode=on", "choose from offline, online"),
        ("tensorboard:http://h", "written to a folder"),
    ],
)
def test_names_that_make_no_sense_are_refused(monkeypatch, tracker, name, said) -> None:
    for package in ("mlflow", "wandb", "tensorboard", "tensorboard.summary"):
        monkeypatch.setitem(sys.modules, package, sys)  # which is not asked for more than its name
    with pytest.raises(InputError) as error:
        open_trackers(name)
    assert said in str(error.value)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match="set MLFLOW_TRACKING_USERNAME") as error:
        open_trackers("mlflow:https://me:hush@host/x?a=1&a=2")
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("package", ["mlflow", "wandb", "tensorboard"])
def test_a_missing_package_is_told_before_the_run(monkeypatch, tmp_path, package) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    said = command("evaluate", "--log", package, "--out", tmp_path / "run")
    assert said.returncode == 2 and not (tmp_path / "run").exists()
    assert (
        f'--log {package} needs the package {package}: pip install "brusle[{package}]"'
        in said.stderr
    )
    assert len(said.stderr.splitlines()) == 1


SMALL = (
    "--limit",
    "2",
    "--pixels",
    "2",
    "--queries",
    "10",
    "--attack",
    "brusle",
    "--goal",
    "untargeted",
)


def test_a_run_is_logged_when_it_ends_and_again_by_hand(tmp_path, tracker) -> None:
    out = tmp_path / "run"
    said = command("evaluate", *SMALL, "--out", out, "--log", "mine")
    assert said.returncode == 0 and "logged to mine: here" in said.stdout
    again = command("log", out, "--to", "mine", "--json")
    assert json.loads(again.stdout)[0]["tracker"] == "mine"
    assert command("evaluate", *SMALL, "--out", out, "--log", "mine").returncode == 0
    first, second, third = tracker.seen
    assert first.run == second.run == third.run and first.version == second.version == third.version
    assert first.metrics == second.metrics and first.series == second.series == third.series
    assert set(first.pictures) >= {"curve"} and set(first.files) == {
        "rows.csv",
        "run.json",
        "report.md",
    }
    assert "mine" not in (out / "run.json").read_text()  # where it is logged is no part of a run


@pytest.mark.parametrize("error", [RuntimeError("server\nhas gone"), OSError(28, "full")])
def test_a_tracker_that_fails_spoils_nothing(tmp_path, tracker, error) -> None:
    tracker.error = error
    attack, told = brusle.attacks.BruSLe(pixels=1, queries=5), []
    run = brusle.evaluate(
        attacks=attack, goal="untargeted", limit=1, out=tmp_path, log="mine",
        on_warning=told.append,
    )  # fmt: skip
    assert run.logged == [] and (tmp_path / "rows.csv").exists() and len(stored(tmp_path)) == 1
    (line,) = [line for line in told if "mine" in line]
    assert line.startswith("cannot log to mine: ") and "`brusle log` can log it later" in line
    assert "\n" not in line
    by_hand = command("log", tmp_path, "--to", "mine")
    assert by_hand.returncode == 2 and len(by_hand.stderr.splitlines()) == 1


def test_a_failing_tracker_does_not_change_the_exit_code(tmp_path, tracker) -> None:
    tracker.error = DataError("no")
    said = command("evaluate", *SMALL, "--out", tmp_path / "run", "--log", "mine")
    assert said.returncode == 0 and "warning: no (the run is stored" in " ".join(
        said.stdout.split()
    )


def test_keys_are_masked_in_what_a_tracker_complains(tmp_path, tracker, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hush-hush-hush")
    tracker.error = RuntimeError("cannot log in with hush-hush-hush")
    with pytest.raises(DataError) as error:
        log(make_run(tmp_path, [(setting(), rows_of([1], 1))]), "mine")
    assert str(error.value).endswith("cannot log in with ***") and error.value.__cause__ is None


def test_what_is_stored_is_logged_after_an_interruption(tmp_path, tracker) -> None:
    def stop(setting, progress):
        if progress.finished >= 2:
            raise KeyboardInterrupt

    attack = brusle.attacks.BruSLe(pixels=2, queries=30)
    with pytest.raises(KeyboardInterrupt) as error:
        brusle.evaluate(
            attacks=attack, goal="untargeted", limit=6, batch_size=1, out=tmp_path, log="mine",
            on_progress=stop,
        )  # fmt: skip
    (found,) = tracker.seen
    assert not found.finished and found.version == rows_digest(brusle.Run.open(tmp_path))
    assert any("logged to mine" in note for note in error.value.__notes__)
    assert 2 <= len(stored(tmp_path)) < 6


def test_a_run_in_memory_is_logged_too(tracker) -> None:
    attack = brusle.attacks.BruSLe(pixels=1, queries=5)
    run = brusle.evaluate(attacks=attack, goal="untargeted", limit=2, log=["mine"])
    assert run.logged == [f"logged to mine: here, run {tracker.seen[0].run}"]
