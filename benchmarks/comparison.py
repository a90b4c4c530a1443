"""The paper's comparison in small: every attack on the bundled net, on the same images and targets.

    python benchmarks/comparison.py [--images 100] [--out comparison.json] [--only bayes-opt]

Targeted, 10, 20 and 40 pixels: success after 100 to 500 queries of the score-based attacks, after
2000 of the decision-based ones, and of the white-box ones. Untargeted, 1, 3 and 5 pixels after 1000
queries: One-Pixel and BruSLe. Rates are over the images that the net classifies correctly.

Results are kept in ``--out`` as they come; the same command goes on where it was interrupted.
``--picture FILE`` also draws the curves.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import written
from rich.console import Console
from rich.table import Table

import brusle
from brusle.attacks import (
    L0HSJA,
    PGD0,
    BayesOpt,
    BruSLe,
    Minimal,
    OnePixel,
    Pointwise,
    SigmaZero,
    SparseEvo,
    SparseRS,
)
from brusle.evaluation.statistics.rates import Rate
from brusle.search import Attack

BUDGETS = {"targeted": (10, 20, 40), "untargeted": (1, 3, 5)}
MARKS = (100, 200, 300, 400, 500)


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        title: for the table.
        goal: targeted or untargeted.
        build: the attack for a number of pixels and a query limit.
        marks: numbers of queries at which the success rate is given.
        once_per_mark: the schedule stretches with the limit, so every mark needs its own run.
        walks: one run towards fewer pixels serves all budgets.
        share: of the images, for attacks that take long to think.
    """

    title: str
    goal: str
    build: Callable[[int, int], Attack]
    marks: tuple[int, ...]
    once_per_mark: bool = False
    walks: bool = False
    share: float = 1.0


def walking(attack: type) -> Callable[[int, int], Attack]:
    return lambda pixels, queries: Minimal(attack(pixels, queries), queries)


LINES = (
    Line("BruSLe", "targeted", BruSLe, MARKS),
    Line("Sparse-RS", "targeted", SparseRS, MARKS, once_per_mark=True),
    Line(
        "Sparse-RS, synthetic image",
        "targeted",
        lambda p, q: SparseRS(p, q, synthetic=True),
        MARKS,
        once_per_mark=True,
    ),
    Line(
        "SparseEvo, loss, synthetic image",
        "targeted",
        lambda p, q: SparseEvo(p, q, variant="synthetic"),
        MARKS,
    ),
    Line("SparseEvo, loss", "targeted", lambda p, q: SparseEvo(p, q, variant="loss"), (500,)),
    Line("BayesOpt", "targeted", BayesOpt, (100, 200, 250), share=0.5),
    Line("SparseEvo", "targeted", walking(SparseEvo), (2000,), walks=True),
    Line("Pointwise", "targeted", walking(Pointwise), (2000,), walks=True),
    Line("l0-HSJA", "targeted", walking(L0HSJA), (2000,), walks=True),
    Line("PGD0 (white-box)", "targeted", PGD0, (100, 500), once_per_mark=True),
    Line("sigma-zero (white-box)", "targeted", walking(SigmaZero), (500,), walks=True),
    Line("BruSLe", "untargeted", BruSLe, (100, 500, 1000)),
    Line("One-Pixel", "untargeted", OnePixel, (100, 500, 1000)),
    Line(
        "One-Pixel, torchattacks'",
        "untargeted",
        lambda p, q: OnePixel(p, q, variant="torchattacks"),
        (100, 500, 1000),
    ),
)


class Store:
    """Hits and counts by line, budget and mark, in a JSON file."""

    def __init__(self, path: Path, images: int) -> None:
        self.path, self.images = path, images
        self.rates: dict[str, list[int]] = json.loads(path.read_text()) if path.exists() else {}

    def key(self, line: Line, pixels: int, mark: int) -> str:
        return f"{self.images}/{line.goal}/{line.title}/{pixels}/{mark}"

    def put(self, line: Line, pixels: int, mark: int, rate: Rate) -> None:
        self.rates[self.key(line, pixels, mark)] = [rate.hits, rate.count]
        self.path.write_text(json.dumps(self.rates, indent=1) + "\n")

    def get(self, line: Line, pixels: int, mark: int) -> Rate | None:
        found = self.rates.get(self.key(line, pixels, mark))
        return None if found is None else Rate(*found)


def measure(line: Line, store: Store) -> None:
    """Run what is not in the store yet."""
    images = max(1, round(store.images * line.share))

    def attack(pixels: int, queries: int) -> brusle.AttackResult:
        began = time.monotonic()
        run = brusle.evaluate(attacks=[line.build(pixels, queries)], goal=line.goal, limit=images)  # type: ignore[arg-type]
        seconds = time.monotonic() - began
        print(f"  {line.title}, {line.goal}, {pixels} px, {queries} queries: {seconds:.0f} s")
        return run.results[0]

    def missing(pixels: int) -> list[int]:
        return [mark for mark in line.marks if store.get(line, pixels, mark) is None]

    budgets = BUDGETS[line.goal]
    if line.walks:
        if any(missing(pixels) for pixels in budgets):
            result = attack(max(budgets), line.marks[-1])
            count = int(result.attacked.sum())
            for pixels in budgets:
                hits = int((result.success & (result.pixels <= pixels)).sum())
                store.put(line, pixels, line.marks[-1], Rate(hits, count))
        return
    for pixels in budgets:
        wanted = missing(pixels)
        limits = wanted if line.once_per_mark else wanted and [line.marks[-1]]
        for limit in limits:
            result = attack(pixels, limit)
            count = int(result.attacked.sum())
            for mark in [limit] if line.once_per_mark else line.marks:
                rate = result.asr([mark])[mark]
                store.put(line, pixels, mark, Rate(round(rate * count), count))


def table(goal: str, store: Store) -> Table:
    lines = [line for line in LINES if line.goal == goal]
    marks = sorted({mark for line in lines for mark in line.marks})
    title = f"ASR %, {goal}, zoo:cifar10-resnet20, {store.images} images; last: 95 % interval"
    grid = Table(title=title)
    grid.add_column("pixels", justify="right")
    grid.add_column("attack")
    for mark in marks:
        grid.add_column(f"@{mark}", justify="right")
    grid.add_column("interval", justify="right")
    for pixels in BUDGETS[goal]:
        for line in lines:
            rates = [store.get(line, pixels, mark) for mark in marks]
            known = [rate for rate in rates if rate is not None]
            if known:
                low, high = known[-1].interval
                cells = ["" if rate is None else f"{100 * rate.value:.0f}" for rate in rates]
                grid.add_row(str(pixels), line.title, *cells, f"{100 * low:.0f}-{100 * high:.0f}")
        grid.add_section()
    return grid


def figures(store: Store) -> dict[str, written.Table]:
    """The tables of the documentation."""
    scored = [line for line in LINES if line.goal == "targeted" and line.marks[-1] < 2000]
    labelled = [line for line in LINES if line.goal == "targeted" and line.marks[-1] == 2000]
    untargeted = [line for line in LINES if line.goal == "untargeted"]
    few = ("SparseEvo, loss", "BayesOpt")
    targeted = wide("targeted", scored, (100, 200, 500), store)
    short = wide("", [line for line in scored if line.title not in few], (100, 500), store)
    labels = wide("labels only, 2000 queries", labelled, (2000,), store)
    alone = [head.partition(" @")[0] for head in labels[0]]  # all cells are of one mark
    return {
        "targeted": targeted,
        "summary": short,
        "labels": [alone, *labels[1:]],
        "untargeted": wide("untargeted", untargeted, (1000,), store),
    }


def wide(corner: str, lines: Sequence[Line], marks: Sequence[int], store: Store) -> written.Table:
    """A row for each attack, a column for each number of pixels and queries."""
    budgets = BUDGETS[lines[0].goal]
    first = marks[0]
    heads = [f"{p} px @{q}" if q == first else f"@{q}" for p in budgets for q in marks]
    rows = [[corner, *heads]]
    for line in lines:
        rates = [store.get(line, pixels, mark) for pixels in budgets for mark in marks]
        cells = ["" if rate is None else f"{100 * rate.value:.0f}" for rate in rates]
        rows.append([line.title + last_mark(line, marks, store), *cells])
    return rows


def last_mark(line: Line, marks: Sequence[int], store: Store) -> str:
    """Of how many pairs a line is, and what it has at its limit, if no column has it."""
    last = line.marks[-1]
    rates = [store.get(line, pixels, last) for pixels in BUDGETS[line.goal]]
    known = [rate for rate in rates if rate is not None]
    if last in marks or not known:
        return ""
    numbers = ", ".join(f"{100 * rate.value:.0f}" for rate in known)
    return f" ({known[0].count} pairs; @{last}: {numbers})"


def sentence(cells: Sequence[str]) -> str:
    """Numbers in a sentence."""
    return f"{', '.join(cells[:-1])} and {cells[-1]}"


def draw(store: Store, path: Path) -> None:
    """One panel per budget: success against queries; a point where there is a single mark."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = [line for line in LINES if line.goal == "targeted"]
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(BUDGETS["targeted"]), sharey=True)
    for axes, pixels in zip(panels, BUDGETS["targeted"], strict=True):
        for at, line in enumerate(lines):
            known = [(m, store.get(line, pixels, m)) for m in line.marks]
            points = [(mark, 100 * rate.value) for mark, rate in known if rate is not None]
            if points:
                white_box = "white-box" in line.title
                colour = f"C{at}" if at < 10 else "black"
                style = {"color": colour, "lw": 1.6, "ms": 5, "marker": "^" if white_box else "o"}
                style["ls"] = "--" if white_box else "-"
                axes.plot(*zip(*points, strict=True), label=line.title, **style)
        axes.set(title=f"{pixels} pixels", xlabel="queries", xscale="log", ylim=(-3, 103))
        ticks = [100, 200, 500, 2000]
        axes.set_xticks(ticks, [str(t) for t in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("fooled into the target class, %")
    handles, names = panels[-1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("comparison.json"))
    parser.add_argument("--only", help="run only the lines whose title has this in it")
    parser.add_argument("--picture", type=Path)
    written.add_option(parser)
    args = parser.parse_args()
    store = Store(args.out, args.images)
    for line in LINES:
        if args.only is None or args.only.lower() in line.title.lower():
            measure(line, store)
    for goal in BUDGETS:
        Console(width=110).print(table(goal, store))
    tables = figures(store)
    values = {title.lower(): sentence(cells) for title, *cells in tables["labels"][1:]}
    values["sparse-evo"] = values.pop("sparseevo")
    written.write(args.figures, tables, values)
    if args.picture is not None:
        draw(store, args.picture)


if __name__ == "__main__":
    main()
