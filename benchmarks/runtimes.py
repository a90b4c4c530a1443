"""Queries per second in torch and in ONNX Runtime, on one thread of a CPU.

    python benchmarks/runtimes.py

The two take turns, so that both see the same slow and fast spells of the machine; what is printed
is the median ratio over the turns. EfficientNet-Lite0 needs the extra ``bench``.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor

import brusle
from brusle.errors import VictimError
from brusle.oracle import Victim

TURNS = 7
SECONDS = 3.0  # of each runtime in each turn


def rate(victim: Victim, images: Tensor) -> float:
    """Images per second; at least three calls."""
    calls, began = 0, time.perf_counter()
    while calls < 3 or time.perf_counter() - began < SECONDS:
        victim(images)
        calls += 1
    return calls * len(images) / (time.perf_counter() - began)


def measure(name: str, batch: int) -> None:
    runtimes = [brusle.load_victim(n, "cpu") for n in (name, f"{name}?runtime=onnx")]
    _, h, w = runtimes[0].shape  # type: ignore[attr-defined]
    levels = torch.randint(0, 256, (batch, h * w, 3)).float() / 255
    images = levels.view(batch, h, w, 3).permute(0, 3, 1, 2)  # as attacks hand them over
    for victim in runtimes:
        victim(images)
    turns = [[rate(victim, images) for victim in runtimes] for _ in range(TURNS)]
    ratios = [onnx / ours for ours, onnx in turns]
    ours, onnx = (statistics.median(column) for column in zip(*turns, strict=True))
    print(
        f"{name}, batch {batch}: torch {ours:.0f}/s, onnx {onnx:.0f}/s, onnx / torch "
        f"{statistics.median(ratios):.2f} (turns {min(ratios):.2f} to {max(ratios):.2f})"
    )


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread")
    for name, batch in (("zoo:cifar10-resnet20", 250), ("efficientnet-lite:0", 16)):
        try:
            measure(name, batch)
        except VictimError as error:
            print(error)


if __name__ == "__main__":
    main()
