"""A journal: what was answered and sent, over all lives of a run."""

import os
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from brusle.books import SpendingLimit, Totals
from brusle.errors import DataError
from brusle.journal import Journal, Key, image_hashes
from brusle.replies import Reply
from brusle.terms import Terms

FREE = Terms()


def key(number: int, draw: int = 0) -> Key:
    return Key(number.to_bytes(32, "big"), draw)


REPLIES = {
    key(0): Reply(np.array([0.1, -0.0, np.nan, -np.inf])),
    key(1): Reply(np.array([0.1, 3e-45], np.float32), version="v1"),
    key(2): Reply(np.array([0.9, 0.4]), ("/m/1", "/m/2"), ("cat", "dog")),
    key(3): Reply(np.array([0.7]), ("cat",)),
    key(4): Reply(np.zeros(0), ()),
    key(5): Reply(error="too small"),
    key(5, -(2**63)): Reply(np.array([1.0, 2.0])),
    key(5, 2**63 - 1): Reply(np.array([3.0, 4.0])),
}


def same(one: Reply, other: Reply) -> bool:
    """Also the bits of the scores."""
    words = [(r.labels, r.titles, r.error, r.version) for r in (one, other)]
    bits = [(r.scores.dtype, r.scores.tobytes()) for r in (one, other)]
    return words[0] == words[1] and bits[0] == bits[1]


def test_answers_come_back_bit_by_bit(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.note(REPLIES)
        assert not journal.find([key(6), key(0, 1)])
    for reading in (False, True):
        with Journal(tmp_path / "j", reading=reading) as journal:
            found = journal.find([*REPLIES, key(7)])
            assert found.keys() == REPLIES.keys()
            assert all(same(found[k], REPLIES[k]) and found[k].replayed for k in REPLIES)


def test_the_first_answer_stays(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.note({key(0): Reply(np.array([1.0, 2.0]))})
        journal.note({key(0): Reply(np.array([3.0, 4.0]))})
        assert journal.find([key(0)])[key(0)].scores.tolist() == [1, 2]


def test_labels_are_stored_once(tmp_path: Path) -> None:
    for number in range(3):  # the next life goes on with the same numbers
        with Journal(tmp_path / "j") as journal:
            labels = ("cat", "dog", f"other {number}")
            journal.note({key(number): Reply(np.arange(3.0), labels)})
    with sqlite3.connect(tmp_path / "j") as raw:
        stored = [label for (label,) in raw.execute("SELECT label FROM labels ORDER BY id")]
    assert stored == ["cat", "dog", "other 0", "other 1", "other 2"]


def test_text_that_no_file_can_hold_is_told_as_it_is_stored(tmp_path: Path) -> None:
    odd = Reply(np.array([1.0]), ("\ud800 \x00 \n",), error="", version="\udfff")
    with Journal(tmp_path / "j") as journal:
        told = journal.note({key(0): odd})[key(0)]
        assert same(journal.find([key(0)])[key(0)], told)
        assert told.labels == ("\\ud800 \x00 \n",)


def test_a_hash_is_of_shape_and_pixels() -> None:
    images = torch.rand(2, 3, 4, 4)
    hashes = image_hashes(images)
    assert len({*hashes, *image_hashes(images.view(2, 3, 2, 8))}) == 4
    assert image_hashes(images.contiguous(memory_format=torch.channels_last)) == hashes
    assert image_hashes(images[1:].double()) == hashes[1:]


def test_what_is_noted_is_in_the_file_at_once(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        call = journal.books.open(3, FREE)
        with Journal(tmp_path / "j", reading=True) as other:
            assert other.books.totals == Totals(sent=3)
        journal.books.close(call, "answered")
        journal.note(REPLIES)
        with Journal(tmp_path / "j", reading=True) as other:
            assert other.books.totals == Totals(3, 3)
            assert other.find(REPLIES).keys() == REPLIES.keys()


def test_what_nobody_waits_for_is_written_all_the_same(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        for number in range(200):
            journal.note({key(number): Reply(np.array([0.0, number]))}, wait=False)
        journal.flush()
        with Journal(tmp_path / "j", reading=True) as other:
            assert len(other.find(map(key, range(200)))) == 200
        journal.note({key(200): Reply(np.array([0.0, 1.0]))}, wait=False)
    with Journal(tmp_path / "j", reading=True) as other:
        assert other.find([key(200)])


def test_who_does_not_wait_is_told_next_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    (tmp_path / "j").rename(tmp_path / "other")
    journal.note(REPLIES, wait=False)
    with pytest.raises(DataError, match="was removed or renamed"):
        journal.flush()
    with pytest.raises(DataError, match="was removed or renamed"):
        journal.note(REPLIES, wait=False)
    journal.close()


def test_books_know_all_lives(tmp_path: Path) -> None:
    terms = Terms(requests=10)
    for life in range(3):
        with Journal(tmp_path / "j") as journal:
            for outcome in ("answered", "refused"):
                journal.books.close(journal.books.open(1, terms), outcome)
            journal.books.open(1, terms)  # and the process is killed
            assert journal.books.totals == Totals(3 * life + 3, life + 1, life + 1, life)
    with Journal(tmp_path / "j") as journal:
        assert journal.books.totals == Totals(9, 3, 3, 3)
        assert [images for _, images in journal.books.recent] == [1] * 9
        with pytest.raises(SpendingLimit, match="9 images were sent"):
            journal.books.open(2, terms)
        journal.books.open(1, terms)
        with pytest.raises(SpendingLimit):
            journal.books.open(1, terms)


def test_only_the_last_hour_is_recent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1e9]
    monkeypatch.setattr("time.time", lambda: now[0])
    with Journal(tmp_path / "j") as journal:
        for count in (1, 2, 3):
            journal.books.open(count, FREE)
            now[0] += 2000
        assert journal.books.recent == [(1e9 + 4000, 3)]
    with Journal(tmp_path / "j") as journal:
        assert journal.books.recent == [(1e9 + 4000, 3)]


def test_many_threads_share_it(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:

        def work(thread: int) -> None:
            for number in range(50):
                call = journal.books.open(1, FREE)
                mine = key(1000 * thread + number)
                labels = (f"label {number}", f"label {thread}")
                journal.note({mine: Reply(np.array([thread, number], float), labels)})
                journal.books.close(call, "answered")
                assert journal.find([mine])[mine].labels == labels

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert journal.books.totals == Totals(400, 400)
    with Journal(tmp_path / "j", reading=True) as journal:
        for thread in range(8):
            found = journal.find([key(1000 * thread + n) for n in range(50)])
            assert [r.scores.tolist() for r in found.values()] == [[thread, n] for n in range(50)]


def test_there_is_one_writer(tmp_path: Path) -> None:
    message = rf"another run \(process {os.getpid()}\) writes to the journal"
    with Journal(tmp_path / "j"), pytest.raises(DataError, match=message):
        Journal(tmp_path / "j")
    Journal(tmp_path / "j").close()


def test_a_reader_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no journal"):
        Journal(tmp_path / "j", reading=True)
    assert not any(tmp_path.iterdir())
    Journal(tmp_path / "j").close()
    with Journal(tmp_path / "j", reading=True) as journal:
        with pytest.raises(DataError, match="opened for reading"):
            journal.note(REPLIES)
        with pytest.raises(DataError, match="opened for reading"):
            journal.books.open(1, FREE)


def test_it_is_read_where_nobody_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.note(REPLIES)
        journal.books.open(4, FREE)
    (tmp_path / "j.lock").unlink()
    monkeypatch.setattr("os.access", lambda _, mode: mode != os.W_OK)
    with Journal(tmp_path / "j", reading=True) as journal:
        assert journal.find(REPLIES).keys() == REPLIES.keys()
        assert journal.books.totals.sent == 4
        assert [path.name for path in tmp_path.iterdir()] == ["j"]


def test_a_file_that_is_taken_away_ends_all_writing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    (tmp_path / "j").rename(tmp_path / "other")
    for _ in range(2):
        with pytest.raises(DataError, match="was removed or renamed"):
            journal.note(REPLIES)
        if not (tmp_path / "j").exists():
            (tmp_path / "other").rename(tmp_path / "j")
    with pytest.raises(DataError, match="was removed or renamed"):  # something may be missing
        journal.books.open(1, FREE)
    journal.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE more (x)", "its tables are not those"),
        ("DROP TABLE answers", "its tables are not those"),
        ("DROP TABLE about", "its tables are not those"),
        ("CREATE TRIGGER t AFTER INSERT ON calls BEGIN DELETE FROM calls; END", "its tables"),
        ("UPDATE about SET value = '\"brusle-journal-9\"' WHERE key = 'format'", "is of format"),
        ("UPDATE answers SET draw = 3 WHERE draw = 0", "checksum does not fit"),
        ("UPDATE labels SET label = 'mouse'", "checksum does not fit"),
        ("DELETE FROM labels WHERE id = 0", "label 0"),
        ("UPDATE calls SET outcome = 'refused'", "checksum does not fit"),
        ("UPDATE calls SET images = 'many'", "checksum does not fit"),
    ],
)
def test_a_changed_file_is_refused_and_left_as_it_is(tmp_path, statement, message) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.note(REPLIES)
        journal.books.close(journal.books.open(1, FREE), "answered")
    raw = sqlite3.connect(path)
    with raw:
        raw.execute(statement)
    raw.close()
    content = path.read_bytes()
    for reading in (True, False):
        with pytest.raises(DataError, match=message) as error:
            Journal(path, reading=reading)
        assert "\n" not in str(error.value) and str(path) in str(error.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"no database", b"x" * 5000, b"SQLite format 3\0" + b"x" * 99])
def test_another_file_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(content)
    for reading in (True, False):
        with pytest.raises(DataError, match="move it away|restore it"):
            Journal(path, reading=reading)
    assert path.read_bytes() == content


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "j-wal").symlink_to(tmp_path / "elsewhere")
    for name in ("link", "pipe", "j"):
        with pytest.raises(DataError, match="is no plain file"):
            Journal(tmp_path / name)
    assert not (tmp_path / "elsewhere").exists()
