"""Images per second of a model as it is, as brusle runs it, and in ONNX Runtime, on a CPU.

    python benchmarks/runtimes.py [--threads 1]

"As it is" means a plain forward pass; "brusle" has batch normalisation merged and images in
channels_last layout. (Memory that is kept instead of given back, see `brusle.allocation`, is at
work in all three: it cannot be switched off within a process.) They take turns, so that all see the
same slow and fast spells of the machine; the ratios are medians over the turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import written
from torch import Tensor

import brusle
from brusle.errors import VictimError

TURNS = 7
SECONDS = 3.0  # of each in each turn
HEAD = ("plain torch", "as brusle runs it", "onnx", "brusle / plain", "onnx / plain")


def rate(ask: Callable[[Tensor], Tensor], images: Tensor) -> float:
    """Images per second; at least three calls."""
    calls, began = 0, time.perf_counter()
    while calls < 3 or time.perf_counter() - began < SECONDS:
        ask(images)
        calls += 1
    return calls * len(images) / (time.perf_counter() - began)


def measure(name: str, batch: int) -> list[str]:
    quick, onnx = (brusle.load_victim(n, "cpu") for n in (name, f"{name}?runtime=onnx"))
    module = brusle.load_victim(name, "cpu").module.to(memory_format=torch.contiguous_format)

    def plain(images: Tensor) -> Tensor:
        with torch.inference_mode():
            return module(images.contiguous())

    _, h, w = quick.shape
    levels = torch.randint(0, 256, (batch, h * w, 3)).float() / 255
    images = levels.view(batch, h, w, 3).permute(0, 3, 1, 2)  # as attacks hand them over
    ways = {"as it is": plain, "brusle": quick, "onnx": onnx}
    for ask in ways.values():
        ask(images)
    turns = [[rate(ask, images) for ask in ways.values()] for _ in range(TURNS)]
    print(f"{name}, batch {batch}")
    speeds, times = [], []
    for at, way in enumerate(ways):
        speed = statistics.median(turn[at] for turn in turns)
        ratios = [turn[at] / turn[0] for turn in turns]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"  {way:9} {speed:6.0f}/s  {statistics.median(ratios):.2f} times ({spread})")
        speeds.append(f"{speed:.0f}")
        times.append(f"{statistics.median(ratios):.2f} ({spread})")
    return [f"`{name}`, batch {batch}", *speeds, *times[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    written.add_option(parser)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    table = [[f"images/s, {args.threads} CPU threads", *HEAD]]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name, batch in (
        ("zoo:cifar10-resnet20", 250),
        ("zoo:cifar10-vit", 250),
        ("efficientnet-lite:0", 16),
    ):
        try:
            table.append(measure(name, batch))
        except VictimError as error:
            print(error)
    written.write(args.figures, {"speed": table})


if __name__ == "__main__":
    main()
