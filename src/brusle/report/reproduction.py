"""Our numbers beside the paper's: as text for tables, as Markdown, and as a picture."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from brusle.evaluation.reproduce import Cell, Outcome, Reproduction
from brusle.report.curves import COLOURS

LEGEND = (
    "Each cell: ours in percent [95 % interval], then the paper's; * where the paper's lies "
    "outside the interval."
)
_MOST = 3  # so many columns of numbers fit a terminal of 80
_WIDTH = 22
_METRICS = {
    "asr": "attack success rate",
    "accuracy": "accuracy under attack",
    "mean sparsity": "mean share of changed pixels",
}


@dataclass(frozen=True)
class Block:
    """A table of strings; a row is pixels, queries, and a cell for each line of the paper."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def title(outcome: Outcome) -> str:
    """What the tables of a part are about."""
    part = outcome.job.part
    victim = f"{outcome.job.victim}{part.behind}"
    return f"{part.name}: {_METRICS[part.metric]}, {part.goal}, {victim}"


def blocks(outcome: Outcome) -> list[Block]:
    """The tables of a part, each narrow enough for a terminal."""
    lines = list(dict.fromkeys((cell.attack, cell.variant) for cell in outcome.cells))
    places = list(dict.fromkeys((cell.pixels, cell.queries) for cell in outcome.cells))
    found = {(cell.attack, cell.variant, cell.pixels, cell.queries): cell for cell in outcome.cells}
    made = []
    for some in _chunks(lines):
        rows = [
            (str(pixels), str(queries), *(_text(found[*line, pixels, queries]) for line in some))
            for pixels, queries in places
        ]
        made.append(Block(("pixels", "queries", *(_header(*line) for line in some)), tuple(rows)))
    return made


def notes(outcome: Outcome) -> list[str]:
    """What a reader of the numbers should know."""
    part, whole, agreement = outcome.job.part, outcome.whole, outcome.agreement
    pairs = ""
    if part.goal == "targeted":
        pairs = f", {outcome.pairs} pairs of image and target"
        if part.targets != whole.targets:
            pairs += f" ({part.targets} targets each, the paper: {whole.targets})"
    said = [
        f"victim: {outcome.job.note}",
        f"images: {outcome.images} of {outcome.job.data} (the paper: "
        f"{whole.images or 'all'}){pairs}, all classified correctly; seed {part.seeds[0]}",
        "another model, and other images, make the levels differ",
    ]
    if agreement.count:
        said[-1] += (
            f"; the order of the lines should not: the paper's strongest is the strongest here in "
            f"{agreement.hits} of {agreement.count} places"
        )
    if outcome.errors:
        said.append(
            f"{outcome.errors} results cannot be counted (victim failed, or a success did not "
            f"pass verification)"
        )
    return said


def markdown(done: Reproduction) -> str:
    """The whole as Markdown."""
    text = [f"# {done.preset.name}", f"{done.preset.summary} ({done.preset.dataset}). {LEGEND}"]
    for outcome in done.outcomes:
        text.append(f"## {title(outcome)}")
        for block in blocks(outcome):
            lines = [block.headers, ("---:",) * len(block.headers), *block.rows]
            text.append("\n".join(f"| {' | '.join(map(_plain, line))} |" for line in lines))
        text.append("\n".join(f"- {note}" for note in notes(outcome)))
    if done.left_out:
        text.append("\n".join(f"- left out: {reason}" for reason in done.left_out))
    return "\n\n".join(text) + "\n"


def picture(done: Reproduction, path: str | Path) -> bool:
    """Draw our numbers against the paper's; False if there are none to compare."""
    # matplotlib takes half a second to import, and only this needs it
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = [
        (o, [c for c in o.cells if c.paper is not None and c.low is not None])
        for o in done.outcomes
    ]
    points = [(outcome, cells) for outcome, cells in points if cells]
    if not points:
        return False
    figure = Figure(figsize=(1 + 4 * len(points), 5), layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(1, len(points), squeeze=False)[0]
    for axes, (outcome, cells) in zip(all_axes, points, strict=True):
        axes.plot((0, 100), (0, 100), color="0.8", linewidth=1)
        for at, line in enumerate(dict.fromkeys((c.attack, c.variant) for c in cells)):
            mine = [cell for cell in cells if (cell.attack, cell.variant) == line]
            axes.errorbar(
                [cell.paper for cell in mine],
                [cell.ours for cell in mine],
                [[c.ours - (c.low or 0) for c in mine], [(c.high or 0) - c.ours for c in mine]],
                fmt="o",
                markersize=4,
                linewidth=1,
                color=COLOURS[at % len(COLOURS)],
                label=", ".join(filter(None, line)),
            )
        axes.set(xlim=(-2, 102), ylim=(-2, 102), aspect="equal")
        part = outcome.job.part
        axes.set_title(f"paper: {part.model}\nhere: {outcome.job.victim}{part.behind}", fontsize=8)
        axes.set_xlabel(f"paper: {_METRICS[part.metric]} (%)")
        axes.set_ylabel("ours (%), 95 % interval")
        axes.legend(fontsize=8)
    figure.suptitle(done.preset.name)
    figure.savefig(path, dpi=150)
    return True


def _header(attack: str, variant: str) -> str:
    return textwrap.fill(f"{attack}, {variant}" if variant else attack, _WIDTH)


def _text(cell: Cell) -> str:
    ours = "-" if math.isnan(cell.ours) else f"{cell.ours:.1f}"
    ends = "" if cell.low is None or cell.high is None else f" [{cell.low:.0f}, {cell.high:.0f}]"
    paper = "-" if cell.paper is None else f"{'*' * cell.outside}{cell.paper:.1f}"
    return f"{ours}{ends} {paper:>5}"


def _plain(text: str) -> str:
    return text.replace("\n", " ").replace("*", r"\*").strip()


def _chunks(lines: Sequence[tuple[str, str]]) -> list[Sequence[tuple[str, str]]]:
    """Groups of at most `_MOST` lines, as equal as can be."""
    size = math.ceil(len(lines) / math.ceil(len(lines) / _MOST))
    return [lines[at : at + size] for at in range(0, len(lines), size)]
