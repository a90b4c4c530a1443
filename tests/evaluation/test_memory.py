"""How much memory an evaluation takes must not depend on how many images it has."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import brusle
from brusle.attacks import BruSLe
from brusle.data import Source
from brusle.victims import wrap

SHAPE, CLASSES = (3, 96, 96), 4


def image(row: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(row)
    return torch.randint(0, 256, SHAPE, generator=generator).float() / 255


def read(rows) -> torch.Tensor:
    return torch.stack([image(row) for row in rows])


def scores(images: torch.Tensor) -> torch.Tensor:
    """Some pixels decide, so that there are successes to write."""
    return images[:, 0, :: 96 // CLASSES, 0][:, :CLASSES].double()


def peak(images: int, out: Path) -> None:
    """Print the largest memory of this process, in MB, after an evaluation of so many pairs."""
    labels = torch.cat([scores(image(row)[None]).argmax(1) for row in range(images)])
    names = tuple(f"{row:05d}" for row in range(images))
    data = Source("made", labels, tuple("abcd"), names, read)
    victim = wrap(scores, output="logits", name="corners")
    run = brusle.evaluate(victim, data, [BruSLe(200, 4)], "targeted", out, batch_size=32)
    assert run.summaries()[0].images == images and run.summaries()[0].asr.hits > images / 100
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


@pytest.mark.slow
def test_memory_is_flat(tmp_path) -> None:
    def measure(images: int) -> float:
        command = [sys.executable, __file__, str(images), str(tmp_path / str(images))]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    few, many = measure(200), measure(2000)
    assert many <= 1.5 * few, f"{few:.0f} MB for 200 pairs, {many:.0f} MB for 2000"


if __name__ == "__main__":
    peak(int(sys.argv[1]), Path(sys.argv[2]))
