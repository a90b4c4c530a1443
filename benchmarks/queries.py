"""How many queries attacks need, on the same images and targets: PixelBandit, BruSLe, Sparse-RS.

    python benchmarks/queries.py                                    the bundled net and images
    python benchmarks/queries.py --data "cifar10:test?dir=..." --pixels 10 20 40
    python benchmarks/queries.py --goal untargeted --pixels 3 5 10
    python benchmarks/queries.py --victim "efficientnet-lite:0?runtime=onnx" \
        --data imagenet:photographs --goal untargeted --pixels 50 --queries 1000 --batch-size 16

Images come in the order of one fixed permutation of the data set; ``--skip`` leaves the first ones
out, so that an attack can be tuned on others than it is measured on. Those that the victim gets
wrong are passed over. Targets are one random other class per image.

For each number of pixels: success rates, mean and median queries (a failure counts as the limit),
the mean relative to BruSLe's with a 95 % interval (paired bootstrap over images), the mean of the
best margin so far, and the time of the attack over the time within the victim.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import written
from rich.console import Console
from rich.table import Table
from torch import Tensor

import brusle
from brusle.attacks import make
from brusle.data import load
from brusle.defences import defend
from brusle.errors import BrusleError
from brusle.outcomes import FAULTY
from brusle.problems import Problems
from brusle.results import AttackResult
from brusle.search import Round
from brusle.session import run
from brusle.victim import Victim, call_victim

NAMES = {"brusle": "BruSLe", "sparse-rs": "Sparse-RS", "pixel-bandit": "PixelBandit"}


class Timed:
    """A victim that adds up how long it takes."""

    def __init__(self, victim: Victim) -> None:
        self.victim, self.seconds = victim, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.victim, name)

    def draw(self, images: Tensor, keys: Tensor) -> Tensor:
        """Ask the victim, whether it is randomised or not."""
        began = time.perf_counter()
        scores = call_victim(self.victim, images, keys)
        self.seconds += time.perf_counter() - began
        return scores


class Margins:
    """How far the goal is reached, query by query: an ``on_round`` that writes it down."""

    def __init__(self, problems: Problems) -> None:
        targeted = problems.targets is not None
        self.aim = problems.targets if targeted else problems.labels
        self.sign = 1.0 if targeted else -1.0
        self.journal: dict[int, list[float]] = {}

    def __call__(self, seen: Round) -> None:
        scores, aim = seen.feedback.scores.values.double().cpu(), self.aim[seen.rows][:, None]
        lead = scores.gather(1, aim)[:, 0] - scores.scatter(1, aim, -torch.inf).amax(1)
        for row, margin in zip(seen.rows.tolist(), (self.sign * lead).tolist(), strict=True):
            self.journal.setdefault(row, []).append(margin)


def choose(args: argparse.Namespace, victim: Victim) -> tuple[Tensor, Tensor, Tensor]:
    """Images that the victim gets right, their labels, and targets."""
    data = load(args.data)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(1234))
    images, labels, found = [], [], 0
    for rows in order[args.skip :].split(args.batch_size):
        scores = victim(data.images[rows])
        right = rows[scores.argmax(1) == data.labels[rows]]
        images.append(data.images[right])
        labels.append(data.labels[right])
        found += len(right)
        if found >= args.pairs:
            break
    chosen, label = torch.cat(images)[: args.pairs], torch.cat(labels)[: args.pairs]
    classes = scores.shape[1]
    drawn = torch.randint(
        1, classes, (len(label),), generator=torch.Generator().manual_seed(args.seed + 7)
    )
    return chosen, label, (label + drawn) % classes


def spent(result: AttackResult, limit: int) -> Tensor:
    """``(n,)``: queries; a failure counts as the limit."""
    return torch.where(result.success, result.queries, limit).double()


def best_margins(journal: dict[int, list[float]], limit: int) -> Tensor:
    """``(n, limit)``: the best margin so far; it stays where an attack has ended."""
    rows = [values + [-torch.inf] * (limit - len(values)) for values in journal.values()]
    return torch.tensor(rows, dtype=torch.float64).cummax(1).values


def ratio(own: Tensor, other: Tensor) -> tuple[float, float, float]:
    """Of the means, and its 95 % interval by a paired bootstrap."""
    draw = torch.randint(len(own), (4000, len(own)), generator=torch.Generator().manual_seed(0))
    spread = (own[draw].mean(1) / other[draw].mean(1)).quantile(
        torch.tensor([0.025, 0.975]).double()
    )
    return float(own.mean() / other.mean()), float(spread[0]), float(spread[1])


def measure(args: argparse.Namespace, victim: Victim, pixels: int, marks: list[int]) -> list[dict]:
    """Run all attacks with one number of pixels."""
    images, labels, targets = choose(args, victim)
    problems = Problems.make(
        images, labels, targets if args.goal == "targeted" else None, range(len(labels))
    )
    lines, used = [], {}
    for name in args.attacks:
        timed, margins = Timed(victim), Margins(problems)
        result = run(
            make(name, pixels, args.queries),
            timed,
            problems,
            seed=args.seed,
            batch_size=args.batch_size,
            on_round=margins,
        )
        used[name] = spent(result, args.queries)
        best = best_margins(margins.journal, args.queries)
        lines.append(
            {
                "goal": args.goal,
                "pixels": pixels,
                "attack": name,
                "images": len(labels),
                "errors": sum(status in FAULTY for status in result.status),
                "rate": {
                    q: float((used[name] <= q)[result.success].sum()) / len(labels) for q in marks
                },
                "mean": float(used[name].mean()),
                "median": float(used[name].median()),
                "margin": {q: float(best[:, q - 1].mean()) for q in marks},
                "overhead": result.seconds / timed.seconds,
                "queries": used[name].long().tolist(),
            }
        )
    for line in lines:
        if "brusle" in used and line["attack"] != "brusle":
            line["ratio"] = ratio(used[line["attack"]], used["brusle"])
    return lines


def show(console: Console, lines: list[dict], marks: list[int]) -> None:
    """Two tables: queries, and margins."""
    first = lines[0]
    title = f"{first['goal']}, {first['pixels']} pixels, {first['images']} images"
    table = Table(title=title)
    for head in ("attack", *(f"@{q}" for q in marks), "mean", "median", "ratio", "overhead"):
        table.add_column(head, justify="left" if head == "attack" else "right", no_wrap=True)
    for line in lines:
        rates = [f"{100 * line['rate'][q]:.1f}" for q in marks]
        against = "{:.3f} [{:.2f}, {:.2f}]".format(*line["ratio"]) if "ratio" in line else ""
        cells = [f"{line['mean']:.1f}", f"{line['median']:.0f}", against, f"{line['overhead']:.2f}"]
        table.add_row(line["attack"], *rates, *cells)
    console.print(table)
    margins = Table(title="best margin so far, mean")
    for head in ("attack", *(f"@{q}" for q in marks)):
        margins.add_column(head, justify="left" if head == "attack" else "right")
    for line in lines:
        margins.add_row(line["attack"], *(f"{line['margin'][q]:.2f}" for q in marks))
    console.print(margins)


def figures(args: argparse.Namespace, lines: list[dict]) -> None:
    """Write or complete the tables that docs/attacks.md has of such a run."""
    tables = {name: written.read_table(args.figures, name) for name in ("ratios", "robust")}
    values, pixels = {}, str(lines[0]["pixels"])
    trained = args.victim.partition("zoo:cifar10-resnet20-")[2]
    for line in lines:
        name = NAMES.get(line["attack"], line["attack"])
        if trained:
            withstood = f"{100 * (1 - line['rate'][args.queries]):.0f}"
            written.put(tables["robust"], [pixels, name], f"{trained[0]}_{trained[1:]}", withstood)
        elif line["attack"] == "pixel-bandit" and "ratio" in line:
            ratio = "{:.2f} [{:.2f}, {:.2f}]".format(*line["ratio"])
            if args.victim == "zoo:cifar10-resnet20":
                written.put(tables["ratios"], [args.goal], f"{pixels} px", ratio)
            elif args.victim == "zoo:cifar10-vit":
                values[f"transformer-{pixels}"] = ratio
            elif "imagenet:" in args.data:
                values[f"photographs-{args.goal}-{pixels}"] = ratio
    if "imagenet:" in args.data and args.goal == "targeted":
        tables["margins"] = margin_table(lines)
    written.write(args.figures, {n: t for n, t in tables.items() if t}, values, keep=True)


def margin_table(lines: list[dict]) -> written.Table:
    """How far each attack has come after so many queries."""
    marks = [q for q in lines[0]["margin"] if q >= 500]
    table = [["", *(f"@{q}" for q in marks), "success"]]
    table[0][1] = f"margin {table[0][1]}"
    for line in lines:
        name = NAMES.get(line["attack"], line["attack"])
        margins = [f"{line['margin'][q]:.2f}" for q in marks]
        table.append([name, *margins, f"{100 * line['rate'][marks[-1]]:.0f} %"])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--victim", default="zoo:cifar10-resnet20")
    parser.add_argument("--defence", nargs="+", default=[], help="as in rnd:0.02")
    parser.add_argument("--data", default="sample")
    parser.add_argument("--goal", choices=("targeted", "untargeted"), default="targeted")
    parser.add_argument("--pixels", type=int, nargs="+", default=[10])
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--attacks", nargs="+", default=["brusle", "sparse-rs", "pixel-bandit"])
    parser.add_argument("--pairs", type=int, default=300, help="most images")
    parser.add_argument("--skip", type=int, default=0, help="images to leave out first")
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write everything here")
    written.add_option(parser)
    args = parser.parse_args()
    known = (50, 100, 125, 200, 500, 1000, 2000, 3000)
    marks = [q for q in known if args.queries / 15 <= q <= args.queries]
    victim = defend(brusle.load_victim(args.victim), args.defence)
    console = Console(width=max(100, Console().width))
    console.print(f"{victim.name}, {args.data}, skip {args.skip}, torch {torch.__version__}")
    everything = []
    for pixels in args.pixels:
        lines = measure(args, victim, pixels, marks)
        everything += lines
        show(console, lines, marks)
        figures(args, lines)
        if args.json:
            args.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    try:
        main()
    except BrusleError as error:
        raise SystemExit(f"error: {error}") from None
