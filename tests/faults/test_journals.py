"""A journal survives kills and notices damage: nothing is asked twice, nothing wrong is told."""

import multiprocessing
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from models import integer_model, random_images
from tampering import damage

from brusle.books import Totals
from brusle.errors import DataError
from brusle.journal import Journal, Key, image_hashes
from brusle.replies import Reply
from brusle.terms import Terms
from brusle.victims import recorded, wrap

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
