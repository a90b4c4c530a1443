"""A journal survives kills and notices damage: nothing is asked twice, nothing wrong is told."""

import multiprocessing
import os
import random
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from models import integer_model, random_images
from rehearsing import NET, misbehaving, name_of, net
from tampering import damage

from brusle.books import Totals
from brusle.data import source
from brusle.errors import DataError
from brusle.journal import Journal, Key, image_hashes
from brusle.journal.canary import Canary
from brusle.replies import Reply
from brusle.terms import Terms
from brusle.victims import load_victim, recorded, wrap

SHAPE, IMAGES, THREADS = (3, 8, 8), 120, 4


def answers(log: Path, path: Path, delay: float) -> list[torch.Tensor]:
    """Ask for all images from several threads; a line is in the log before each answer."""
    model, file = integer_model(SHAPE, 4), os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def answer(images: torch.Tensor) -> torch.Tensor:
        os.write(file, (image_hashes(images)[0].hex() + "\n").encode())
        time.sleep(delay)
        return model(images)

    victim = recorded(wrap(answer, output="logits", name="mortal"), path)
    images, found = random_images(IMAGES, SHAPE), {}

    def ask(first: int) -> None:
        for at in range(first, IMAGES, THREADS):
            found[at] = victim(images[at : at + 1])

    threads = [threading.Thread(target=ask, args=(i,), daemon=True) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    victim.close()
    os.close(file)
    return [found[at] for at in range(IMAGES)]


def asked(log: Path) -> Counter[str]:
    return Counter(log.read_text().split()) if log.exists() else Counter()


def live(log: Path, path: Path) -> None:
    torch.set_num_threads(1)  # threads do not outlive a fork
    answers(log, path, 0.002)


def test_killed_again_and_again_and_no_answer_is_asked_for_twice(tmp_path: Path) -> None:
    log, path, chance, kills = tmp_path / "log", tmp_path / "journal.sqlite", random.Random(0), 0
    while True:
        until = sum(asked(log).values()) + chance.randint(3, 20)
        process = multiprocessing.get_context("fork").Process(target=live, args=(log, path))
        process.start()
        while process.is_alive() and sum(asked(log).values()) < until:
            time.sleep(0.001)
        process.kill()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -9
        kills += 1
        assert kills < 100
    assert kills >= 5
    before = asked(log)
    assert len(before) == IMAGES and sum(before.values()) - IMAGES <= kills * THREADS
    with Journal(path) as journal:
        totals = journal.books.totals
    assert totals.sent == totals.answered + totals.lost
    assert 0 <= totals.answered - IMAGES <= kills * THREADS  # answered, and killed before noting it
    assert 0 <= totals.sent - sum(before.values()) <= kills * THREADS
    expected = integer_model(SHAPE, 4).function(random_images(IMAGES, SHAPE))
    assert torch.equal(torch.cat(answers(log, path, 0)), expected)
    assert asked(log) == before


def judged(path: Path, reading: bool) -> str:
    """What a journal says that is damaged, or not; raises if it tells something wrong."""
    try:
        with Journal(path, reading=reading) as journal:
            found = journal.find(KNOWN)
            totals, looks = journal.books.totals, journal.canary.looks
    except DataError as error:
        return str(error)
    assert found.keys() == KNOWN.keys() and totals == TOTALS and len(looks) == 2
    for key, reply in found.items():
        assert (reply.scores == KNOWN[key].scores).all() and reply.labels == KNOWN[key].labels
    return ""


def test_damage_is_noticed_or_does_no_harm(whole: Path, tmp_path: Path) -> None:
    refused = 0
    for seed in range(180):
        path = tmp_path / f"j{seed}"
        damaged = damage(whole.read_bytes(), seed)
        path.write_bytes(damaged)
        complaints = [judged(path, reading) for reading in (True, False)]
        assert bool(complaints[0]) == bool(complaints[1]), seed
        for complaint in filter(None, complaints):
            refused += 1
            assert "\n" not in complaint and str(path) in complaint
            assert path.read_bytes() == damaged, "it was paid for"
    assert refused > 100, "most of a journal is not empty"


KNOWN = {
    Key(bytes([i]) * 32, i % 3): Reply(
        np.arange(5.0) + i, tuple(f"label {i + k}" for k in range(5))
    )
    for i in range(60)
}
TOTALS = Totals(20, 20)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "j"
    with Journal(path) as journal:
        for _ in range(20):
            journal.books.close(journal.books.open(1, Terms()), "answered")
        journal.note(KNOWN)
        reply = next(iter(KNOWN.values()))
        journal.canary.add(1, reply, torch.rand(1, *SHAPE))
        journal.canary.add(20, reply)
    return path


def unkept(path: Path) -> int:
    """Images that the file calls answered, less the answers that are in it."""
    with closing(sqlite3.connect(path)) as file:
        (called,) = file.execute("SELECT total(images) FROM calls WHERE outcome = 'answered'")
        (kept,) = file.execute("SELECT count(*) FROM answers")
        # the first look at the canary is the answer to an image, and no call of its own
        (looks,) = file.execute("SELECT count(*) FROM canary WHERE number > 0")
    return int(called[0]) - kept[0] - looks[0]


@pytest.mark.parametrize("kind", ["service", "local"])
def test_the_books_call_nothing_answered_that_a_kill_would_lose(
    kind, tmp_path, monkeypatch
) -> None:
    """Even if another thread commits at the worst moment: just before an answer is kept."""
    seen: list[int] = []

    def at_the_worst_moment(owner: type, method: str) -> None:
        plain = getattr(owner, method)

        def first_commit(self, *args, **kwargs):
            journal.flush()
            seen.append(unkept(journal.path))
            return plain(self, *args, **kwargs)

        monkeypatch.setattr(owner, method, first_commit)

    at_the_worst_moment(Journal, "note")
    at_the_worst_moment(Canary, "add")
    images = source("sample").take(range(6)).images
    with misbehaving(net) as server, Journal(tmp_path / "journal.sqlite") as journal:
        asked = load_victim(name_of(server) if kind == "service" else NET, "cpu")
        if kind == "service":
            asked = asked.under(Terms(canary=2))
        victim = recorded(asked, journal)
        for part in images.split(2):
            victim(part)
        journal.flush()
        assert len(seen) >= 3 and max(seen) <= 0
        assert unkept(journal.path) == 0
        assert journal.books.totals.answered == (7 if kind == "service" else 6)
