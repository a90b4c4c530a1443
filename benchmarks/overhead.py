"""What brusle adds on top of the model's own forward passes, as ratios within one run.

    python benchmarks/overhead.py            all measurements (a quarter of an hour on two cores)
    python benchmarks/overhead.py --quick    fewer repetitions

Three kinds of number:

* BruSLe, Sparse-RS, One-Pixel and PixelBandit on the bundled ResNet-20 (32 x 32) at batch 250, and
  BruSLe and PixelBandit on EfficientNet-Lite0 (224 x 224, needs the extra ``bench``) at batch 16:
  time of an attack over the time of the same number of bare forward passes with the same batch
  sizes, each pass timed right after the attack's own; median over some turns.
* the bundled net: time of the attack with batch size 1 over the time with batch 250.
* PixelBandit: time of a round near the 10 000th query over the time of one soon after its memory
  is full.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import written
from torch import Tensor

import brusle
from brusle.attacks import BruSLe, OnePixel, PixelBandit, SparseRS
from brusle.attacks.base import SparseAttack
from brusle.errors import VictimError
from brusle.victim import Victim

NAMES = {
    BruSLe: "brusle",
    SparseRS: "sparse-rs",
    OnePixel: "one-pixel",
    PixelBandit: "pixel-bandit",
}


class Paired:
    """A victim that times, after every call of the attack, a bare pass of the same size.

    So both see the same slow and fast spells of the machine.
    """

    def __init__(self, victim: Victim, images: Tensor) -> None:
        self.victim, self.name, self.output = victim, victim.name, victim.output
        self.device, self.images = victim.device, images
        self.bare_seconds, self.queries = 0.0, 0

    def __call__(self, images: Tensor) -> Tensor:
        scores = self.victim(images)
        began = time.perf_counter()
        self.victim(self.images[: len(images)])
        self.bare_seconds += time.perf_counter() - began
        self.queries += len(images)
        return scores


def ratio(
    victim: Victim, attack: SparseAttack, images: Tensor, batch_size: int, turns: int
) -> tuple[float, list[float], int]:
    """Median of attack time over bare time, all the ratios, and the queries of one attack."""
    labels = torch.cat([victim(part).argmax(1) for part in torch.split(images, batch_size)])
    targets = (labels + 1) % 10
    bare = images[:batch_size].contiguous(memory_format=torch.channels_last)
    ratios, queries = [], 0
    for _ in range(turns):
        paired = Paired(victim, bare)
        result = attack(paired, images, labels, targets, batch_size=batch_size)
        ratios.append((result.seconds - paired.bare_seconds) / paired.bare_seconds)
        queries = paired.queries
    return statistics.median(ratios), ratios, queries


class Stopwatch:
    """A victim that costs nothing, knows one class, and notes when it is asked."""

    name, output, device = "stopwatch", "logits", torch.device("cpu")

    def __init__(self) -> None:
        self.asked: list[float] = []

    def __call__(self, images: Tensor) -> Tensor:
        self.asked.append(time.perf_counter())
        away = images.mean((1, 2, 3))
        return torch.stack([10 + away, away, away * 2], 1)


def growth(attack: SparseAttack, images: Tensor) -> float:
    """Median time of the last tenth of all rounds over that of the second tenth."""
    victim = Stopwatch()
    labels = torch.zeros(len(images), dtype=torch.int64)
    attack(victim, images, labels, labels + 1, batch_size=len(images))
    times = torch.tensor(victim.asked[1 : attack.queries], dtype=torch.float64).diff()
    tenth = attack.queries // 10
    return float(times[-tenth:].median() / times[tenth : 2 * tenth].median())


def rounds(quick: bool) -> list[list[str]]:
    """What PixelBandit adds to a query with its memory full, on one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    table = [["one CPU core, memory full", "images at once", "time per query"]]
    for side, pixels, counts in ((32, 10, (1, 64)), (224, 100, (1, 16))):
        for count in counts:
            attack = PixelBandit(pixels, 60 if quick else 600)
            victim, images = Stopwatch(), torch.rand(count, 3, side, side).mul(255).round() / 255
            labels = torch.zeros(count, dtype=torch.int64)
            attack(victim, images, labels, labels + 1, batch_size=count)
            times = torch.tensor(victim.asked[1 : attack.queries], dtype=torch.float64).diff()
            late = float(times[len(times) // 2 :].median())
            each = f"{1000 * late / count:.1f} ms"
            table.append([f"{side} x {side}, {pixels} pixels", str(count), each])
    torch.set_num_threads(threads)
    return table


def show(title: str, measured: tuple[float, list[float], int], bound: float) -> None:
    median, ratios, queries = measured
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    print(f"{title:42} {median:.3f} (turns {spread}; {queries} queries; at most {bound})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    written.add_option(parser)
    args = parser.parse_args()
    quick, figures = args.quick, {}
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")

    resnet = brusle.load_victim("zoo:cifar10-resnet20", device="cpu")
    sample = brusle.data.load("sample")
    mirrored = [sample.images.flip(axes) for axes in ((), (2,), (3,), (2, 3))]
    many = torch.cat(mirrored)  # 800 images, so that a batch of 250 is full most of the time
    queries = 60 if quick else 100
    attacks = {
        BruSLe(20, queries): 1.05,
        SparseRS(20, queries): 1.1,
        OnePixel(5, queries): 1.1,
        PixelBandit(10, queries if quick else 500): 1.4,
    }
    for attack, bound in attacks.items():
        measured = ratio(resnet, attack, many, 250, turns=1 if attack.queries == 500 else 3)
        show(f"{attack.label} / bare, ResNet-20, batch 250", measured, bound)
        figures[NAMES[type(attack)]] = f"{measured[0]:.2f}"

    try:
        lite = brusle.load_victim("efficientnet-lite:0", device="cpu")
    except VictimError as error:
        print(error)
    else:
        noise = torch.randint(0, 256, (32, 3, 224, 224)).float() / 255
        few = 15 if quick else 50
        for attack, bound in {BruSLe(200, few): 1.05, PixelBandit(50, 2 * few): 1.15}.items():
            measured = ratio(lite, attack, noise, 16, turns=3)
            show(f"{attack.label} / bare, EfficientNet-Lite0, batch 16", measured, bound)
            figures[f"{NAMES[type(attack)]}-224"] = f"{measured[0]:.2f}"

    few = sample.balanced(100 if quick else 200)
    attack = BruSLe(pixels=5, queries=100)
    seconds = {}
    for batch_size in (1, 250):
        result = attack(resnet, few.images, few.labels, batch_size=batch_size)
        seconds[batch_size] = result.seconds
    gain = seconds[1] / seconds[250]
    title = "batch size 1 / batch size 250, ResNet-20"
    print(f"{title:42} {gain:.1f} ({len(few)} images; at least 4)")

    attack = PixelBandit(pixels=10, queries=1000 if quick else 10_000)
    grown = growth(attack, sample.images[:16])
    title = f"PixelBandit, query {attack.queries} / {attack.queries // 10}"
    print(f"{title:42} {grown:.2f} (time of a round; it stays the same)")
    written.write(args.figures, {"rounds": rounds(quick)}, figures)


if __name__ == "__main__":
    main()
