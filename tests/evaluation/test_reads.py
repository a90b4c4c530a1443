"""How often an evaluation reads its images: once for the run, and at most once for each setting."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest
import torch
from models import integer_model, own_labels, random_images
from torch import Tensor

import brusle
from brusle.attacks import BruSLe, SparseRS
from brusle.data import Source
from brusle.data.sets import remembering
from brusle.evaluation.running import workload

SHAPE = (3, 12, 12)


def counted(n: int) -> tuple[brusle.victims.FunctionVictim, Source, Counter[int]]:
    """A victim, images that it classifies correctly, and how often each has been read."""
    model, images = integer_model(SHAPE, 5), random_images(n, SHAPE)
    reads: Counter[int] = Counter()

    def read(rows: Sequence[int]) -> Tensor:
        reads.update(rows)
        return images[list(rows)]

    names = tuple(f"{i:02d}" for i in range(n))
    return model.victim(), Source("counted", own_labels(model, images), (), names, read), reads


@pytest.mark.parametrize("goal", ["untargeted", "targeted"])
def test_each_image_is_read_once_per_run_and_once_per_setting(tmp_path, goal) -> None:
    victim, data, reads = counted(10)
    attacks = [BruSLe(3, 30), SparseRS(3, 30)]
    run = brusle.evaluate(victim, data, attacks, goal, tmp_path, batch_size=4)
    assert (tmp_path / "gallery.png").is_file() and any(r.success.any() for r in run.results)
    assert reads.total() <= 10 * (1 + 2) and max(reads.values()) <= 1 + 2
    assert reads.total() == 10  # so few images are kept


def test_images_beyond_what_is_kept_are_read_again(monkeypatch) -> None:
    """For the run, for the first look, and for each setting; nothing is written here."""
    victim, data, reads = counted(10)
    size = data.read([0]).nbytes
    reads.clear()
    monkeypatch.setattr(workload, "remembering", partial(remembering, most=4 * size))
    brusle.evaluate(victim, data, [BruSLe(3, 30), SparseRS(3, 30)], "untargeted", batch_size=4)
    assert [reads[row] for row in range(4)] == [1] * 4
    assert reads.total() <= 10 * (1 + 2)


def test_remembered_images_are_the_same_images() -> None:
    _, data, reads = counted(6)
    size = data.read([0]).nbytes
    reads.clear()
    kept = remembering(data, 3 * size)
    for rows in ([2, 0], [0, 1, 2], [5, 5, 0], [4, 5], range(6)):
        assert torch.equal(kept.read(rows), data.read(rows))
    assert kept.take([1]).names == ("01",)
    kept.read([0])[0].zero_()  # a copy: whoever changes it changes nothing else
    assert torch.equal(kept.read([0]), data.read([0]))
    kept.read([5])[0].zero_()
    assert torch.equal(kept.read(range(6)), data.read(range(6)))
