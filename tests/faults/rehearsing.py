"""Evaluations of a service, each a command in a process of its own, for tests to disturb.

The service is ``brusle serve`` with one image per call, so that no answer depends on which images
happened to share a call.
"""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hostile_services import METADATA, Answer, Hostile, Request, response
from served import Served, served
from stored import stored

from brusle.books import Totals
from brusle.evaluation.record import Row, Session
from brusle.evaluation.storing.store import Store
from brusle.journal import FILE, Journal
from brusle.victim import Victim
from brusle.victims import load_victim

IMAGES, PIXELS, QUERIES = 8, 10, 20
NET = "zoo:cifar10-resnet20"
PLAN = ("--goal", "untargeted", "--attack", "brusle", "--pixels", PIXELS, "--queries", QUERIES)
MAIN = "from brusle.cli import main; main()"
# a service that is gone is waited for a minute; tests need not wait as long
HASTY = f"import brusle.victims.remote.tries as tries; tries._FIRST = 0.02; {MAIN}"
PATIENCE = 60.0  # seconds that no command of these tests takes


@contextmanager
def service(books: Path, *options: object, **environment: str) -> Iterator[Served]:
    """The net behind HTTP; ``books`` gets a line for each call."""
    words = ("--victim", NET, "--most", 1, "--books", books, *options)
    with served(*words, **environment) as ready:
        yield ready


def started(*words: object, code: str = MAIN, **environment: str) -> subprocess.Popen[str]:
    """A command that is running."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """What a command has said; it is killed if it does not end."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def brusle(
    *words: object, code: str = MAIN, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command, from beginning to end."""
    return ended(started(*words, code=code, **environment))


def evaluation(victim: str, out: Path, *options: object) -> tuple[object, ...]:
    """The words of the evaluation that all of these tests make."""
    return ("evaluate", "--victim", victim, "--out", out, "--limit", IMAGES, *PLAN, *options)


def evaluated(
    victim: str, out: Path, *options: object, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The evaluation, from beginning to end."""
    return brusle(*evaluation(victim, out, *options), **environment)


def stop_after(
    process: subprocess.Popen[str], books: Path, calls: int, number: signal.Signals = signal.SIGKILL
) -> subprocess.CompletedProcess[str]:
    """Send a signal to a command when the service has answered so many calls in all."""
    until = time.monotonic() + PATIENCE
    while answered(books).total() < calls and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(number)
    return ended(process)


def net(request: Request, name: str = NET) -> bytes:
    """The net's answer, of a service in this process that misbehaves otherwise."""
    pixels = torch.from_numpy(request.pixels().astype("f4"))
    scores = _victim(name)(pixels).double()
    tensor = {"name": "scores", "datatype": "FP64", "shape": list(scores.shape)}
    return response({"outputs": [tensor | {"data": scores.flatten().tolist()}]})


def misbehaving(answer: Answer) -> Hostile:
    """A service in this process that takes the images of the net."""
    image = {"name": "images", "datatype": "FP32", "shape": [-1, 3, 32, 32]}
    said = METADATA | {"inputs": [image], "outputs": []}
    return Hostile(answer, response(said))


def name_of(server: Hostile) -> str:
    """The victim that asks such a service, for one image per call."""
    return f"oip:{server.url}/m?most=1&binary=off"


@functools.cache
def _victim(name: str) -> Victim:
    return load_victim(name, "cpu")


def lines(books: Path) -> list[dict[str, Any]]:
    """The calls in the books of a service, which are written while it runs."""
    text = books.read_text() if books.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def answered(books: Path) -> Counter[str]:
    """How often each image was answered, by its hash."""
    calls = [call for call in lines(books) if call["outcome"] == "answered"]
    return Counter(image for call in calls for image in call["hashes"])


def received(books: Path) -> int:
    """Images that the service has received."""
    return sum(call["images"] for call in lines(books))


def most_within(books: Path, seconds: float) -> int:
    """The largest number of images that the service has received in any so many seconds."""
    times = sorted(call["time"] for call in lines(books))
    return max(sum(begin <= at < begin + seconds for at in times) for begin in times)


def rows(folder: Path) -> dict[tuple[int, int], Row]:
    """The rows of a run folder without what counts the disturbance."""
    return {key: replace(row, lost=0) for key, row in stored(folder).items()}


def totals(folder: Path) -> Totals:
    """What the journal of a run folder says was sent."""
    with Journal(folder / FILE, reading=True) as journal:
        return journal.books.totals


def sessions(folder: Path) -> tuple[Session, ...]:
    """The sessions of a run folder."""
    with Store.read(folder) as store:
        about = store.about()
        assert about is not None
        return about.sessions


def spent(folder: Path) -> Totals:
    """What all sessions of a run folder say was sent."""
    said = [session.spending for session in sessions(folder)]
    assert all(spending is not None for spending in said)
    names = ("sent", "answered", "refused", "lost")
    return Totals(*(sum(getattr(spending, name) for spending in said) for name in names))


def require_exact(folder: Path, books: Path) -> None:
    """What the service has received is what was sent, and all of it has one of three fates."""
    said = totals(folder)
    assert said.sent == received(books) == said.answered + said.refused + said.lost
    assert said == spent(folder)
