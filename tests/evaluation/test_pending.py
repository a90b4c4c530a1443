"""Answers to attacks that were interrupted: asked once, believed only as far as they can be."""

import os
import sqlite3
from pathlib import Path

import pytest
import torch
from models import Counting, integer_model, own_labels, random_images

import brusle
from brusle.attacks import PGD0, BruSLe, Ensemble
from brusle.errors import DataError
from brusle.evaluation.storing import pending
from brusle.evaluation.storing.pending import FILE, Pending
from brusle.evaluation.storing.store import Store
from brusle.victims import wrap

SHAPE, CLASSES, IMAGES = (3, 8, 8), 4, 10
ATTACK = BruSLe(1, 40)


class Interrupted(Counting):
    """Counts what it is asked for, and is interrupted by Ctrl-C at one of its calls."""

    def __init__(self, function, at: int = -1) -> None:
        super().__init__(function)
        self.at = at

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        if len(self.batches) == self.at:
            self.at = -1
            raise KeyboardInterrupt
        return super().__call__(images)


def run(folder, victim: Counting, attack=ATTACK, **options):
    model, images = integer_model(SHAPE, CLASSES), random_images(IMAGES, SHAPE)
    labels = own_labels(model, images)
    wrapped = wrap(victim, output="logits", name="counting", differentiable=True)
    return brusle.evaluate(wrapped, (images, labels), [attack], "untargeted", folder, **options)


def interrupt(folder, at: int = 25, attack=ATTACK, **options) -> Counting:
    victim = Interrupted(integer_model(SHAPE, CLASSES).function, at)
    with pytest.raises(KeyboardInterrupt):
        run(folder, victim, attack, **options)
    return victim


def expected(attack=ATTACK):
    return list(run(None, integer_model(SHAPE, CLASSES), attack).rows())


def whole(attack=ATTACK) -> int:
    """Images that an undisturbed run asks for."""
    victim = integer_model(SHAPE, CLASSES)
    run(None, victim, attack)
    return victim.seen


def test_the_rest_is_asked_and_nothing_twice_but_the_clean_images(tmp_path) -> None:
    first = interrupt(tmp_path)
    victim = integer_model(SHAPE, CLASSES)
    assert list(run(tmp_path, victim).rows()) == expected()
    looks = 2 * IMAGES  # the first look and the clean images, at most, a second time
    assert first.seen + victim.seen <= whole() + looks
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_answers_are_good_for_every_batch_size(tmp_path, batch_size) -> None:
    interrupt(tmp_path, batch_size=7)
    victim = integer_model(SHAPE, CLASSES)
    assert list(run(tmp_path, victim, batch_size=batch_size).rows()) == expected()


def test_gradients_are_asked_for_again_and_what_follows_them_is_not(tmp_path) -> None:
    attack = Ensemble([PGD0(1, 10), BruSLe(1, 40)])
    first = interrupt(tmp_path, 40, attack)
    victim = integer_model(SHAPE, CLASSES)
    assert list(run(tmp_path, victim, attack).rows()) == expected(attack)
    assert first.seen + victim.seen <= whole(attack) + (2 + 10) * IMAGES


def test_another_victim_of_the_same_name_begins_anew(tmp_path) -> None:
    interrupt(tmp_path)
    with Store.read(tmp_path) as store:
        done = {row.image for row in store.rows(1)}
    assert len(done) < IMAGES - 2
    other = integer_model(SHAPE, CLASSES, seed=5)
    rows = {row["image"]: row for row in run(tmp_path, other).rows()}
    alone = {row["image"]: row for row in run(None, other).rows()}
    # those that the first victim had finished are stored, and nobody can tell whose they are
    assert all(rows[image] == alone[image] for image in alone if image not in done)


def test_a_damaged_file_is_made_anew(tmp_path) -> None:
    interrupt(tmp_path)
    path = tmp_path / FILE
    path.write_bytes(b"no database" + path.read_bytes()[11:])
    assert list(run(tmp_path, integer_model(SHAPE, CLASSES)).rows()) == expected()


HOSTILE = {
    "a link": lambda path: path.symlink_to(path.with_name("precious")),
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a trigger": lambda path: _database(
        path,
        pending._SCHEMA + "CREATE TRIGGER t AFTER INSERT ON answers BEGIN DELETE FROM answers; END",
    ),
    "a view": lambda path: _database(path, "CREATE VIEW answers AS SELECT 1"),
}


def _database(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_others_put_in_its_place_is_not_used(tmp_path, kind) -> None:
    (tmp_path / "precious").write_text("precious")
    HOSTILE[kind](tmp_path / FILE)
    if kind in ("a link", "a pipe"):
        with pytest.raises(DataError, match="pending.sqlite is no plain file"):
            run(tmp_path, integer_model(SHAPE, CLASSES))
    else:
        assert list(run(tmp_path, integer_model(SHAPE, CLASSES)).rows()) == expected()
    assert (tmp_path / "precious").read_text() == "precious"


LIES = {
    "type": "O",
    "draws": b"odd",
    "scores": b"\0" * 7,
    "scores of NaN": b"\xff" * 64,
    "draws as text": "text",
}


@pytest.mark.parametrize("lie", LIES)
def test_what_cannot_be_an_answer_is_none(tmp_path, lie) -> None:
    interrupt(tmp_path)
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute(f"UPDATE answers SET {lie.split()[0]} = ?", (LIES[lie],))
    connection.close()
    assert list(run(tmp_path, integer_model(SHAPE, CLASSES)).rows()) == expected()


def test_answers_of_another_number_of_classes_are_none(tmp_path) -> None:
    interrupt(tmp_path)
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE answers SET scores = scores || scores")
    connection.close()
    assert list(run(tmp_path, integer_model(SHAPE, CLASSES)).rows()) == expected()


def test_a_file_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(pending, "_SCHEMA", "CREATE nonsense")
    victim = integer_model(SHAPE, CLASSES)
    assert list(run(tmp_path, victim).rows()) == expected()


def test_no_more_is_kept_than_the_limit_says(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(pending, "MOST_BYTES", 400)
    monkeypatch.setattr(pending, "SOON", 0.0)
    interrupt(tmp_path)
    with sqlite3.connect(tmp_path / FILE) as connection:
        ((total,),) = connection.execute("SELECT TOTAL(LENGTH(scores)) FROM answers")
    connection.close()
    assert total <= 400 + 2 * IMAGES * 8 * CLASSES
    assert list(run(tmp_path, integer_model(SHAPE, CLASSES)).rows()) == expected()


def test_most_answered_first_and_what_is_finished_is_forgotten(tmp_path) -> None:
    tmp_path.mkdir(exist_ok=True)
    one = Pending(tmp_path, "about")
    memory = one.of("setting", [11, 12, 13], randomised=False)
    memory.note(torch.tensor([0, 1, 2]), torch.tensor([0, 0, 0]), torch.ones(3, 2))
    memory.note(torch.tensor([2, 1]), torch.tensor([1, 1]), torch.ones(2, 2))
    memory.note(torch.tensor([2]), torch.tensor([2]), torch.ones(1, 2))
    one.write()
    assert one.counts("setting") == {11: 1, 12: 2, 13: 3}
    assert not one.counts("another")
    one.forget("setting", [13])
    one.write()
    assert one.counts("setting") == {11: 1, 12: 2}
    one.close()
    again = Pending(tmp_path, "about")
    assert again.counts("setting") == {11: 1, 12: 2}
    assert not Pending(tmp_path, "another version").counts("setting")
    memory = again.of("setting", [12], randomised=False)
    assert memory.recall(torch.tensor([0]), torch.tensor([0])) is None  # the clean image
    memory.note(torch.tensor([0]), torch.tensor([0]), torch.ones(1, 2))
    at, scores = memory.recall(torch.tensor([0]), torch.tensor([1]))
    assert at.tolist() == [0] and scores.tolist() == [[1, 1]]
    assert memory.recall(torch.tensor([0]), torch.tensor([2])) is None
    again.forget("setting", [11, 12])
    again.close()
    assert not (tmp_path / FILE).exists()
