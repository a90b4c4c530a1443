"""Looking at a run folder at the moment when a run begins in it."""

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from entry import run as command

from brusle.errors import DataError
from brusle.evaluation.storing.store import FILE, Store
from brusle.locking import LOCK

READERS = [
    ("report",), ("compare",), ("verify",), ("export", "--to", "x.csv"),
    ("export", "--images", "x"), ("export", "--npz", "x.npz"),
]  # fmt: skip


def nothing(folder: Path) -> None:
    """The lock is there, and the file is not."""


def no_tables(folder: Path) -> None:
    """The file is there, and nothing is in it."""
    (folder / FILE).touch()


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def lock(folder) -> Iterator[IO[str]]:
    """The lock of a run that has just begun."""
    with (folder / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


@pytest.mark.parametrize("state", [nothing, no_tables])
def test_a_run_that_is_just_starting(folder, lock, state) -> None:
    state(folder)
    answer = command("status", folder)
    assert answer.returncode == 0 and not answer.stderr
    assert "a run is just starting" in " ".join(answer.stdout.split())
    found = json.loads(command("status", folder, "--json").stdout)
    assert found["writing"] and found["settings"] == []
    for name, *options in READERS:
        answer = command(name, folder, *options)
        assert answer.returncode == 2 and answer.stderr.count("\n") == 1
        assert "a run is just starting in" in answer.stderr


@pytest.mark.parametrize("state", [nothing, no_tables])
def test_a_start_that_was_ended(folder, state) -> None:
    (folder / LOCK).touch()
    state(folder)
    for name, *options in [("status",), *READERS]:
        answer = command(name, folder, *options)
        assert answer.returncode == 2 and answer.stderr.count("\n") == 1
        assert "holds no run: give the folder of an evaluation" in answer.stderr
    Store.write(folder).close()  # which does not keep the next run from beginning
    assert command("status", folder).returncode == 0


def test_watching_waits_for_a_run_that_is_just_starting(folder, lock, monkeypatch) -> None:
    looks = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            no_tables(folder)
        if len(looks) == 3:
            lock.close()
            (folder / FILE).unlink()
            Store.write(folder).close()

    monkeypatch.setattr("time.sleep", wait)
    answer = command("status", folder, "--watch", 7)
    assert answer.returncode == 0 and looks == [7, 7, 7]
    said = " ".join(answer.stdout.split())
    assert said.count("a run is just starting") == 3 and "no run is writing" in said


def test_a_run_without_attacks_is_one_line_for_every_command(folder) -> None:
    Store.write(folder).close()
    assert command("status", folder).returncode == 0
    for name, *options in READERS:
        answer = command(name, folder, *options)
        assert answer.returncode == 2 and answer.stderr.count("\n") == 1, answer
        assert answer.stderr.startswith("error: ") and "bug in brusle" not in answer.stderr


def test_who_looks_does_not_keep_a_run_from_beginning(folder, monkeypatch) -> None:
    with (folder / LOCK).open("w") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        monkeypatch.setattr("time.sleep", lambda seconds: looker.close())
        Store.write(folder).close()


def test_two_runs_still_do_not_write_to_one_folder(folder, lock, monkeypatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(DataError, match="another run .* writes to"):
        Store.write(folder)


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300", "0", "-1"])
def test_seconds_that_cannot_be_waited(folder, lock, seconds) -> None:
    answer = command("status", folder, "--watch", seconds)
    assert answer.returncode == 2 and "bug in brusle" not in answer.stderr
