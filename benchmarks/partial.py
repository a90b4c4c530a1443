"""Attacks on victims that give only a list of labels, against all scores: docs/partial.md.

    python benchmarks/partial.py [--images 60] [--queries 300] [--quick] [--out partial.json]
                                 [--photographs FOLDER] [--only losses]

The bundled net on the bundled images of the first five classes; what attacks do on such lists was
tuned on those of the next four. Attacks that begin at an image of the target class need images of
all classes, and get them. With ``--photographs``, a folder for ``imagenet:``, EfficientNet-Lite0 as
well.

Prints Markdown. Results are kept in ``--out`` as they come; the same command goes on where it was
interrupted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import written

import brusle
from brusle import scores
from brusle.attacks import BruSLe, PixelBandit, SparseEvo, SparseRS
from brusle.defences import make
from brusle.evaluation.record import GoalName
from brusle.evaluation.statistics.rates import Rate
from brusle.search import Attack
from brusle.victim import Victim
from brusle.victims.wrappers import VictimView

ALL = "all scores"
LISTS = (ALL, "topk:1", "topk:3", "confidences:0.01,0.5,10", "confidences:0.05,0.5,10")
LONG_LISTS = (ALL, "topk:1", "topk:3", "topk:10", "confidences:0.01,0.5,10")
Budgets = Sequence[tuple[GoalName, int]]
BUDGETS: Budgets = (
    ("targeted", 10),
    ("targeted", 20),
    ("targeted", 40),
    ("untargeted", 3),
    ("untargeted", 5),
)
QUICK: Budgets = (("targeted", 40), ("untargeted", 5))
ATTACKS: dict[str, Callable[..., Attack]] = {
    "BruSLe": BruSLe,
    "SparseRS": SparseRS,
    "PixelBandit": PixelBandit,
}
LOSSES: tuple[tuple[str, str, scores.Missing], ...] = (
    ("cross-entropy, absent is 0", "ce", 0.0),
    ("margin, absent is the floor", "margin", "floor"),
    ("margin, absent is 0", "margin", 0.0),
    ("margin, absent is -1 (default)", "margin", -1.0),
)
STARTS: dict[str, Callable[[int, int], Attack]] = {
    "`BruSLe`: lowers the top until the target shows": BruSLe,
    '`BruSLe(palette="image")`: in the colours of an image of the target class': (
        lambda pixels, queries: BruSLe(pixels, queries, palette="image")
    ),
    "`SparseEvo`: walks from an image of the target class, by the label on top": SparseEvo,
    '`SparseEvo(variant="loss")`: the same, by the scores': (
        lambda pixels, queries: SparseEvo(pixels, queries, variant="loss")
    ),
    "`PixelBandit`: lowers the top until the target shows": PixelBandit,
}


@dataclass(frozen=True)
class Counting(VictimView):
    """A victim whose absent labels count as something else."""

    missing: scores.Missing = scores.MISSING


class Bench:
    """A victim and its images; what was measured is kept in a JSON file.

    Args:
        victim: its name.
        data: where images come from, as in `brusle.evaluate`.
        images: how many.
        queries: of every attack.
        out: the file.
    """

    def __init__(self, victim: str, data: Any, images: int, queries: int, out: Path) -> None:
        self.victim, self.data, self.images, self.queries = victim, data, images, queries
        self.out = out

    def rate(
        self,
        spec: str,
        goal: GoalName,
        pixels: int,
        build: Callable[..., Attack],
        missing: scores.Missing = scores.MISSING,
        **options: Any,
    ) -> Rate:
        """The success rate of an attack on a list, measured unless it is known."""
        attack = build(pixels, self.queries, **options)
        source = self.data if isinstance(self.data, str) else "half"
        facts = (
            self.victim,
            source,
            self.images,
            self.queries,
            spec,
            goal,
            pixels,
            attack.label,
            missing,
        )
        key = "/".join(map(str, facts))
        known = json.loads(self.out.read_text()) if self.out.exists() else {}
        if key not in known:
            began = time.monotonic()
            run = brusle.evaluate(
                self._behind(spec, missing),
                self.data,
                [attack],
                goal,
                limit=self.images,
                targets=1,
                on_progress=None,
            )
            result = run.results[0]
            known[key] = [int(result.success.sum()), int(result.attacked.sum())]
            self.out.write_text(json.dumps(known, indent=1) + "\n")
            print(f"<!-- {key}: {known[key]}, {time.monotonic() - began:.0f} s -->", flush=True)
        return Rate(*known[key])

    def _behind(self, spec: str, missing: scores.Missing) -> Victim:
        """The victim with only such a list."""
        victim = brusle.load_victim(self.victim)
        if spec == ALL:
            return victim
        listed = make(spec, victim)
        return Counting(listed, listed.name, brusle.victim.traits(listed).patience, missing)


def attacks(bench: Bench, lists: Sequence[str], budgets: Budgets) -> written.Table:
    """Every attack on every list."""
    names = [f"{goal}, {pixels} px" for goal, pixels in budgets]
    lines = []
    for (name, build), spec in product(ATTACKS.items(), lists):
        rates = [bench.rate(spec, goal, pixels, build) for goal, pixels in budgets]
        lines.append(["" if spec != lists[0] else name, listed(spec), *map(shown, rates)])
    return [["attack", "victim gives", *names], *lines]


def losses(bench: Bench, lists: Sequence[str], budget: tuple[GoalName, int]) -> written.Table:
    """What attacks that follow a loss should take, and what an absent label should count as."""
    lines = []
    for name, (title, loss, missing) in product(("BruSLe", "SparseRS"), LOSSES):
        rates = [
            bench.rate(spec, *budget, ATTACKS[name], missing, loss=loss)
            for spec in lists
            if spec != ALL
        ]
        lines.append(["" if title != LOSSES[0][0] else name, title, *map(shown, rates)])
    return [["attack", "loss", *(f"`{spec}`" for spec in lists if spec != ALL)], *lines]


def starts(bench: Bench, spec: str, budgets: Budgets) -> written.Table:
    """Ways to a target that is not in the list at first."""
    lines = [
        [title, *(shown(bench.rate(spec, *budget, build)) for budget in budgets)]
        for title, build in STARTS.items()
    ]
    return [["way", *(f"{pixels} px" for _, pixels in budgets)], *lines]


def photographs(bench: Bench, lists: Sequence[str], pixels: int) -> written.Table:
    """How many photographs each attack fools behind each list."""
    rows = [["attack", *map(listed, lists)]]
    for name in ("BruSLe", "PixelBandit"):
        rates = [bench.rate(spec, "untargeted", pixels, ATTACKS[name]) for spec in lists]
        rows.append([name, *(f"{rate.hits} of {rate.count}" for rate in rates)])
    return rows


def listed(spec: str) -> str:
    """What a victim gives, as pages name it."""
    return spec if spec == ALL else f"`{spec}`"


def shown(rate: Rate) -> str:
    low, high = rate.interval
    return f"{100 * rate.value:.0f} ({100 * low:.0f}-{100 * high:.0f})"


def sections(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], written.Table]]]:
    """Titles, and what is measured under each."""
    data = brusle.data.load("sample")
    half = (data.images[:100], data.labels[:100])
    bench = Bench("zoo:cifar10-resnet20", half, args.images, args.queries, args.out)
    lists, budgets = (LISTS[:3], QUICK) if args.quick else (LISTS, BUDGETS)
    targeted = [budget for budget in budgets if budget[0] == "targeted" and budget[1] > 10]
    yield "attacks", lambda: attacks(bench, lists, budgets)
    yield "losses", lambda: losses(bench, lists, targeted[-1])
    whole = Bench(bench.victim, "sample", args.images, args.queries, args.out)
    yield "starts", lambda: starts(whole, "topk:3", targeted)
    if args.photographs:
        name, folder = "efficientnet-lite:0?runtime=onnx", f"imagenet:{args.photographs}"
        large = Bench(name, folder, 10, args.queries, args.out)
        yield "photographs", lambda: photographs(large, LONG_LISTS, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--quick", action="store_true", help="two budgets, and two lists")
    parser.add_argument("--out", type=Path, default=Path("partial.json"))
    parser.add_argument("--photographs", help="a folder of photographs, as imagenet: takes it")
    parser.add_argument("--only", help="one table: attacks, losses, starts or photographs")
    written.add_option(parser)
    args = parser.parse_args()
    tables = {}
    for title, measure in sections(args):
        if args.only in (None, title):
            tables[title] = measure()
            print(f"## {title}\n\n{written.markdown(tables[title])}", flush=True)
    written.write(args.figures, tables, keep=True)


if __name__ == "__main__":
    main()
