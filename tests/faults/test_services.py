"""Evaluations of a service that is busy, broken, or goes away; and the limits that they keep."""

import asyncio
import re
import shutil
import signal
import sqlite3
import threading
import time
from contextlib import closing

import pytest
from hostile_services import Request
from rehearsing import (
    HASTY,
    IMAGES,
    MAIN,
    PATIENCE,
    PLAN,
    answered,
    brusle,
    ended,
    evaluated,
    evaluation,
    misbehaving,
    most_within,
    name_of,
    net,
    received,
    require_exact,
    rows,
    service,
    spent,
    started,
    stop_after,
    totals,
)

pytestmark = pytest.mark.slow


def test_an_undisturbed_run_loses_nothing(quiet) -> None:
    require_exact(quiet / "run", quiet / "books")
    assert totals(quiet / "run").lost == 0


def test_faults_change_no_row_and_are_booked_exactly(quiet, tmp_path) -> None:
    faults = ("--fail", 0.3, "--drop", 0.05, "--rate", "40/s", "--seed", 3)
    with service(tmp_path / "books", *faults) as ready:
        said = evaluated(ready.victim, tmp_path / "run", "--concurrency", 8)
    assert said.returncode == 0, said.stderr
    assert rows(tmp_path / "run") == rows(quiet / "run")
    require_exact(tmp_path / "run", tmp_path / "books")
    assert totals(tmp_path / "run").lost > 20


def test_a_service_that_goes_away(quiet, tmp_path) -> None:
    books, out = tmp_path / "books", tmp_path / "run"
    with service(books) as ready:
        command = started(*evaluation(ready.victim, out), code=HASTY)
        while received(books) < 60:
            assert command.poll() is None
            time.sleep(0.005)
        ready.process.kill()
        said = ended(command)
    assert said.returncode == 3
    first, kept, again = said.stderr.splitlines()
    assert re.match(r"error: .* does not answer \(.*\), tried 9 times", first), first
    assert "attacks are stored in" in kept and again.startswith("the same command goes on: brusle")
    before = answered(books)
    assert totals(out).answered >= before.total() - 1  # the books of a dead service may be ahead
    with service(books, "--port", ready.url.rpartition(":")[2]):
        assert evaluated(ready.victim, out).returncode == 0
    assert rows(out) == rows(quiet / "run")
    twice = answered(books) - answered(quiet / "books")
    assert twice.total() <= 16, "only what was under way was answered again"


def test_ctrl_c_keeps_everything(quiet, tmp_path) -> None:
    books, out = tmp_path / "books", tmp_path / "run"
    with service(books) as ready:
        words = evaluation(ready.victim, out)
        said = stop_after(started(*words), books, 70, signal.SIGINT)
        assert said.returncode == 130
        first, kept, _ = said.stderr.strip().splitlines()
        assert first == "interrupted" and "attacks are stored in" in kept
        require_exact(out, books)
        assert brusle(*words).returncode == 0
    assert rows(out) == rows(quiet / "run")
    assert answered(books) == answered(quiet / "books"), "nothing was asked twice"
    require_exact(out, books)


def test_ctrl_c_does_not_wait_for_a_service_that_hangs(tmp_path) -> None:
    hanging = threading.Semaphore(0)

    async def answer(request: Request) -> bytes:
        if request.number < 2 * IMAGES:  # the first look, and what the attacks begin with
            return net(request)
        hanging.release()
        await asyncio.sleep(PATIENCE)
        return net(request)

    with misbehaving(answer) as server:
        process = started(*evaluation(name_of(server), tmp_path / "run", "--timeout", PATIENCE))
        for _ in range(IMAGES // 2):
            assert hanging.acquire(timeout=PATIENCE)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        said = ended(process)
        assert time.monotonic() - began < 10
    assert said.returncode == 130 and said.stderr.strip().startswith("interrupted")
    sums = totals(tmp_path / "run")
    assert sums.sent == server.images == sums.answered + sums.lost
    assert sums == spent(tmp_path / "run")


def test_limits_hold_over_all_lives_and_faults(quiet, tmp_path) -> None:
    books, out = tmp_path / "books", tmp_path / "run"
    with service(books, "--fail", 0.2, "--drop", 0.1) as ready:
        words = evaluation(ready.victim, out)
        assert stop_after(started(*words, "--requests", 60), books, 20).returncode == -9
        for most, limit in {
            60: ("--requests", 60),
            90: ("--price", "1/100", "--budget", 0.9),
        }.items():
            said = brusle(*words, *limit)
            assert said.returncode == 3
            reason, kept = said.stderr.splitlines()
            assert re.match(r"error: .* allows no more: allow more to go on$", reason), reason
            assert "attacks are stored in" in kept
            assert received(books) <= totals(out).sent == most
        assert brusle(*words, "--requests", 1000).returncode == 0
    assert rows(out) == rows(quiet / "run")


def test_the_pace_holds_over_a_restart(quiet, tmp_path) -> None:
    books, out = tmp_path / "books", tmp_path / "run"
    with service(books) as ready:
        words = evaluation(ready.victim, out, "--rate", "60/s")
        assert stop_after(started(*words), books, 40).returncode == -9
        assert brusle(*words).returncode == 0
    assert rows(out) == rows(quiet / "run")
    assert most_within(books, 1.0) <= 60


NO_SOCKETS = f"""
import anyio, socket
def connect(*_, **__):
    raise SystemExit("a socket was opened")
anyio.connect_tcp = connect  # the event loop may be one that asks no socket of Python's
socket.socket.connect = socket.socket.connect_ex = connect
socket.create_connection = socket.getaddrinfo = connect
{MAIN}
"""


def test_a_replay_opens_no_socket(quiet, tmp_path) -> None:
    copy = shutil.copytree(quiet / "run", tmp_path / "elsewhere" / "copy")
    words = ("evaluate", "--limit", IMAGES, *PLAN, "--out", tmp_path / "run", "--replay", copy)
    said = brusle(*words, code=NO_SOCKETS)
    assert said.returncode == 0, said.stderr
    assert rows(tmp_path / "run") == rows(quiet / "run")
    held = brusle("verify", copy, "--replay", code=NO_SOCKETS)
    assert held.returncode == 0 and re.match(r"(\d+) of \1 successes hold", held.stdout), held


def test_a_journal_without_one_of_its_answers(quiet, tmp_path) -> None:
    copy = shutil.copytree(quiet / "run", tmp_path / "copy")
    with closing(sqlite3.connect(copy / "journal.sqlite")) as journal, journal:
        journal.execute("DELETE FROM answers WHERE image = (SELECT max(image) FROM answers)")
    words = ("evaluate", "--limit", IMAGES, *PLAN, "--out", tmp_path / "run", "--replay", copy)
    said = brusle(*words, code=NO_SOCKETS)
    assert said.returncode == 3
    assert said.stderr.startswith("error: the journal has no answer to this image")
    assert len(said.stderr.splitlines()) == 3
