"""The run folder is removed or renamed while a run writes to it: the run stops and says so."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from models import Counting, integer_model, own_labels, random_images

import brusle
from brusle.attacks import BruSLe
from brusle.errors import DataError
from brusle.evaluation.storing.store import FILE, Store
from brusle.locking import LOCK
from brusle.victims import wrap

SHAPE = (3, 8, 8)


class Witness(Counting):
    """Does something to the folder at one of its calls."""

    def __init__(self, at: int, deed: Callable[[], object]) -> None:
        super().__init__(integer_model(SHAPE, 4).function)
        self.at, self.deed = at, deed

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        if len(self.batches) == self.at:
            self.deed()
        return super().__call__(images)


DEEDS: dict[str, Callable[[Path], object]] = {
    "removed": shutil.rmtree,
    "renamed": lambda folder: folder.rename(folder.with_name("elsewhere")),
    "replaced": lambda folder: (folder.rename(folder.with_name("elsewhere")), folder.mkdir()),
    "without its store": lambda folder: (folder / FILE).unlink(),
    "without its lock": lambda folder: (folder / LOCK).unlink(),
}


def evaluate(victim: Counting, folder: Path) -> brusle.Run:
    images = random_images(20, SHAPE)
    labels = own_labels(integer_model(SHAPE, 4), images)
    wrapped = wrap(victim, output="logits")
    attack = BruSLe(1, 40)
    return brusle.evaluate(wrapped, (images, labels), attack, "untargeted", folder, batch_size=4)


@pytest.mark.parametrize("at", [6, 60])
@pytest.mark.parametrize("deed", DEEDS)
def test_it_is_noticed(deed, at, tmp_path) -> None:
    folder = tmp_path / "run"
    victim = Witness(at, lambda: DEEDS[deed](folder))
    with pytest.raises(DataError, match="removed or renamed") as caught:
        evaluate(victim, folder)
    assert victim.seen < 20 * 40
    assert "\n" not in str(caught.value)
    assert not any("stored in" in note for note in getattr(caught.value, "__notes__", []))
    assert not (folder / "rows.csv").exists()


def test_a_renamed_run_goes_on_under_its_new_name(tmp_path) -> None:
    folder, moved = tmp_path / "run", tmp_path / "moved"
    with pytest.raises(DataError, match="go on with that --out"):
        evaluate(Witness(110, lambda: folder.rename(moved)), folder)
    with Store.read(moved) as store:
        stored = sum(sum(counts.values()) for counts in store.counts().values())
    assert stored
    run = evaluate(Witness(-1, print), moved)
    assert run.resumed >= stored
    assert list(run.rows()) == list(evaluate(Witness(-1, print), tmp_path / "whole").rows())


def test_a_finished_run_may_be_moved(tmp_path) -> None:
    run = evaluate(Witness(-1, print), tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "moved")
    assert len(list(run.rows())) == 20
