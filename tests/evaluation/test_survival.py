"""Evaluations that are killed, and whose folder has other troubles."""

import errno
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from models import integer_model, own_labels, random_images

import brusle
from brusle.attacks import PGD0, BruSLe
from brusle.data import Dataset
from brusle.errors import DataError, InputError, VictimError
from brusle.evaluation.storing.rows import pack_edits, unpack_edits
from brusle.evaluation.storing.store import FILE, Store
from brusle.victims import wrap

sys.path.insert(0, str(Path(__file__).parent))
import survivor
from stored import stored
from survivor import lines, owners
from tampering import tamper


@pytest.mark.slow
def test_killed_ten_times_and_the_rows_are_the_same(tmp_path) -> None:
    whole = survivor.evaluate(tmp_path / "whole", tmp_path / "whole.log")
    expected = stored(tmp_path / "whole")
    assert len(expected) == 80
    folder, log = tmp_path / "run", tmp_path / "log"
    whose = owners(sorted({problem for _, problem in expected}))
    chance = random.Random(1)
    command = [sys.executable, survivor.__file__, str(folder), str(log)]
    kills = 0
    while kills < 10:
        before = len(lines(log))
        until = before + chance.randint(20, len(lines(tmp_path / "whole.log")) // 12)
        done = Counter(problem for _, problem in stored(folder)) if kills else Counter()
        process = subprocess.Popen(command)
        while process.poll() is None and len(lines(log)) < until:
            time.sleep(0.005)
        assert process.poll() is None, "it ended by itself: nothing was shown"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
        asked = Counter(whose[key] for key in lines(log)[before:])
        # a goal has two settings for each problem: with both stored, nobody may ask again
        assert not [problem for problem, count in done.items() if count == 2 and asked[problem]]
        assert stored(folder).items() <= expected.items()
    subprocess.run(command, check=True)
    assert stored(folder) == expected
    spent = len(lines(log))
    # the same command once more: everything is there
    again = survivor.evaluate(folder, log)
    assert len(lines(log)) == spent
    assert again.resumed == 80
    assert list(again.rows()) == list(whole.rows())


def small(out, attacks=(), model=None, images=None):
    model = model or integer_model((3, 8, 8), 4)
    images = random_images(8, (3, 8, 8)) if images is None else images
    victim = model.victim()
    attacks = list(attacks) or [BruSLe(2, 15)]
    labels = own_labels(model, images)
    return brusle.evaluate(victim, (images, labels), attacks, "untargeted", out), model


def test_a_changed_plan_adds_what_is_new(tmp_path) -> None:
    first, model = small(tmp_path / "run")
    spent = model.seen
    more, _ = small(tmp_path / "run", [BruSLe(2, 15), BruSLe(3, 15)], model)
    assert more.resumed == 8
    assert list(more.rows())[:8] == list(first.rows())
    added = more.results[1].ledger.total.sum()
    assert model.seen == spent + int(added) + more.preflight_queries


def test_equal_images_are_attacked_once() -> None:
    images = random_images(4, (3, 8, 8))
    run, model = small(None, images=torch.cat([images, images]))
    assert len(list(run.rows())) == 4
    assert model.seen == int(run.results[0].ledger.total.sum()) + run.preflight_queries


def test_results_of_two_victims_do_not_mix(tmp_path) -> None:
    small(tmp_path / "run")
    before = stored(tmp_path / "run")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    data = (random_images(8, (3, 8, 8)), torch.zeros(8, dtype=torch.int64))
    with pytest.raises(DataError, match="holds results of victim counting, and this is Sequential"):
        brusle.evaluate(net, data, [BruSLe(2, 15)], "untargeted", tmp_path / "run")
    assert stored(tmp_path / "run") == before
    brusle.evaluate(net, data, [BruSLe(2, 5)], "untargeted", tmp_path / "net")
    torch.nn.init.normal_(net[1].weight)
    with pytest.raises(DataError, match="holds results of weights"):
        brusle.evaluate(net, data, [BruSLe(2, 5)], "untargeted", tmp_path / "net")


def test_a_folder_that_another_run_writes_to(tmp_path) -> None:
    with Store.write(tmp_path / "run"):
        with pytest.raises(DataError, match=rf"another run \(process {os.getpid()}\) writes to"):
            small(tmp_path / "run")
        assert Store.read(tmp_path / "run").counts() == {}  # readers are welcome
    small(tmp_path / "run")


def test_a_damaged_store_is_named_and_left_alone(tmp_path) -> None:
    small(tmp_path / "run")
    path = tmp_path / "run" / FILE
    content = bytearray(path.read_bytes())
    content[:2000] = os.urandom(2000)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"results.sqlite: the file is damaged .* move it away"):
        small(tmp_path / "run")
    assert path.read_bytes() == content


def test_a_full_disk_keeps_what_was_stored(tmp_path) -> None:
    small(tmp_path / "run")
    before = stored(tmp_path / "run")
    with Store.write(tmp_path / "run") as store:
        number = store.settings()[0].number + 1
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own full disk
        rows = [replace(row, problem=i, error="x" * 9000) for i, row in enumerate(before.values())]
        with pytest.raises(DataError, match="the disk is full; what was stored before is safe"):
            store.add_rows(number, rows)
    assert stored(tmp_path / "run") == before


@pytest.mark.parametrize("name", ["rows.csv", "run.json", "pairs.json"])
def test_a_disk_that_is_full_for_other_files(name, tmp_path, monkeypatch) -> None:
    folder, replace_file = tmp_path / "run", os.replace

    def full(beside: Path, path: Path) -> None:
        if path.name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_file(beside, path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(DataError, match=f"cannot write .*{name}: No space left on device"):
            small(folder)
    assert len(stored(folder)) == (0 if name == "pairs.json" else 8)
    run, _ = small(folder)  # room was made
    assert len(list(run.rows())) == 8 and (folder / name).exists()


def test_a_folder_that_cannot_be_made(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write to the run folder"):
        small(tmp_path / "file" / "run")
    with pytest.raises(DataError, match="holds no run: give the folder of an evaluation"):
        Store.read(tmp_path)


@contextmanager
def without_rights() -> Iterator[None]:
    """Root may write everywhere, so be somebody else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_folder_that_is_read_only(tmp_path_factory) -> None:
    folder = Path(tempfile.mkdtemp())  # pytest's own are for their user alone
    first, model = small(folder / "run")
    before = stored(folder / "run")
    folder.chmod(0o555)
    for path in folder.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with without_rights():
        with pytest.raises(DataError, match="cannot write to the run folder .*Permission denied"):
            small(folder / "run", [BruSLe(3, 15)], model)
        with pytest.raises(DataError, match="cannot write to the run folder .*Permission denied"):
            small(folder / "other", [BruSLe(3, 15)], model)
        assert stored(folder / "run") == before  # it can be read, and nothing has changed
        assert list(brusle.Run.open(folder / "run").rows()) == list(first.rows())
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(folder)


def test_fewer_images_later_leave_the_others_readable(tmp_path) -> None:
    images = random_images(8, (3, 8, 8))
    first, model = small(tmp_path / "run", images=images)
    spent = model.seen
    fewer, _ = small(tmp_path / "run", model=model, images=images[:3])
    assert (fewer.resumed, len(list(fewer.rows())), model.seen) == (3, 3, spent)
    data = (images, own_labels(model, images))
    again = brusle.Run.open(tmp_path / "run", data)
    assert list(again.rows()) == list(first.rows())
    assert torch.equal(again.results[0].images, first.results[0].images)


def test_images_of_the_same_name_do_not_mix(tmp_path) -> None:
    small(tmp_path / "run")
    before = stored(tmp_path / "run")
    with pytest.raises(DataError, match="results of another image 00000 .* choose another --out"):
        small(tmp_path / "run", images=random_images(9, (3, 8, 8), seed=9))
    with Store.read(tmp_path / "run") as store:
        assert len(store.images()) == 8  # nothing of the other run
    model = integer_model((3, 8, 8), 4)
    data = Dataset("photos", *small_data(model), (), tuple(map(str, range(8))))
    with pytest.raises(DataError, match="holds results of data arrays, and this is photos"):
        brusle.evaluate(model.victim(), data, [BruSLe(2, 15)], "untargeted", tmp_path / "run")
    assert stored(tmp_path / "run") == before


def small_data(model) -> tuple[torch.Tensor, torch.Tensor]:
    images = random_images(8, (3, 8, 8))
    return images, own_labels(model, images)


def test_a_request_is_refused_as_a_whole_before_the_first_query(tmp_path) -> None:
    model = integer_model((3, 8, 8), 4)
    victim = wrap(model, output="logits", name="counting")  # gives no gradients
    for bad, reason in ((PGD0(2, 15), "needs gradients"), (BruSLe(65, 15), "choose fewer")):
        with pytest.raises(InputError, match=reason):
            brusle.evaluate(victim, small_data(model), [BruSLe(2, 15), bad], out=tmp_path / "run")
    assert model.seen == 0
    assert not (tmp_path / "run").exists()


class Moody:
    """A victim that fails on all images but those it likes."""

    def __init__(self, likes) -> None:
        self.model, self.likes = integer_model((3, 8, 8), 4), likes

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        if not all(self.likes(image) for image in images):
            raise RuntimeError("not today")
        return self.model.function(images)


def test_one_bad_image_is_an_error_row_even_if_it_is_alone() -> None:
    images, labels = small_data(integer_model((3, 8, 8), 4))
    images, labels = torch.cat([images, images[:1] / 2]), torch.cat([labels, labels[:1]])
    moody = wrap(Moody(lambda image: image.max() > 0.6), output="logits")
    # a shard is four batches: the ninth image has one for itself
    run = brusle.evaluate(moody, (images, labels), [BruSLe(2, 15)], "untargeted", batch_size=2)
    (result,) = run.results
    assert result.status[-1] == "error" and "not today" in result.errors[8]
    assert "error" not in result.status[:8]
    assert result.scores.shape == (9, 4) and bool(result.scores[8].isnan().all())


def test_a_victim_that_goes_down_stops_the_run_and_the_rest_is_done_later(tmp_path) -> None:
    model = integer_model((3, 8, 8), 4)
    images = random_images(16, (3, 8, 8))
    data = (images, own_labels(model, images))
    up = []
    arguments = (data, [BruSLe(2, 15)], "untargeted", tmp_path / "run")

    def likes(image: torch.Tensor) -> bool:
        """The first eight images and what is made of them."""
        near = (images[:8] == image).float().flatten(1).mean(1).amax() > 0.9
        return bool(up) or bool(near)

    victim = wrap(Moody(likes), output="logits", name="moody")
    with pytest.raises(VictimError, match="no clean image could be classified"):
        brusle.evaluate(victim, *arguments, batch_size=2)
    kept = stored(tmp_path / "run")
    assert len(kept) == 8 and {row.status for row in kept.values()} <= {"success", "failed"}
    up.append("again")
    run = brusle.evaluate(victim, *arguments, batch_size=2)
    assert run.resumed == 8 and len(stored(tmp_path / "run")) == 16
    assert kept.items() <= stored(tmp_path / "run").items()


def test_a_result_is_stored_once(tmp_path) -> None:
    small(tmp_path / "run")
    with Store.write(tmp_path / "run") as store:
        rows = store.rows(1)
        with pytest.raises(DataError, match="stored twice"):
            store.add_rows(1, rows[:1])
        assert store.rows(1) == rows


def test_another_format_is_refused(tmp_path) -> None:
    Store.write(tmp_path).close()
    tamper(tmp_path, "about", value='"brusle-results-9"')
    with pytest.raises(DataError, match="format brusle-results-9, not brusle-results-7"):
        Store.read(tmp_path)
    assert sqlite3.connect(tmp_path / FILE).execute("SELECT COUNT(*) FROM rows").fetchone() == (0,)


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 5, 9), (5, 300, 300)])
def test_edits_are_packed_without_loss(shape) -> None:
    original, other = random_images(2, shape)
    image = original.clone()
    which = torch.randperm(shape[1] * shape[2], generator=torch.Generator().manual_seed(0))[:7]
    image.flatten(1)[:, which] = other.flatten(1)[:, which]
    packed = pack_edits(original, image)
    assert len(packed) == 7 * (4 + shape[0])
    assert torch.equal(unpack_edits(packed, original), image)
    assert torch.equal(unpack_edits(pack_edits(original, original), original), original)
