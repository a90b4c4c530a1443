"""Our numbers beside the paper's: as text for tables, as Markdown, and as a picture."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from brusle.evaluation.paper.cells import Cell
from brusle.evaluation.paper.claims import CheckedClaim, ClaimVerdict
from brusle.evaluation.paper.reproduce import Outcome, Reproduction
from brusle.report import album
from brusle.report.album_picture import album_picture
from brusle.report.blocks import Block
from brusle.report.curves import COLOURS
from brusle.report.markdown import plain
from brusle.report.plots import plot_text, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEGEND = (
    "Each cell: ours in percent [95 % interval], then the paper's; * where the paper's lies "
    "outside the interval."
)
CLAIMS = (
    "What its text claims is checked: ours is the difference of success rates in points, or the "
    "rate of the one line, with its 95 % interval. What few pairs decide is within noise."
)
_MOST = 3  # so many columns of numbers fit a terminal of 80
_WIDTH = 22
_METRICS = {
    "asr": "attack success rate",
    "accuracy": "accuracy under attack",
    "mean sparsity": "mean share of changed pixels",
    "queries to success": "queries to success",
}


def introduction(done: Reproduction) -> str:
    """What a reader needs before the tables."""
    if any(outcome.album for outcome in done.outcomes):
        return album.LEGEND
    if done.preset.place is None:
        return LEGEND
    return f"In the paper: {done.preset.place}. It has no table of this. {LEGEND} {CLAIMS}"


def title(outcome: Outcome) -> str:
    """What the tables of a part are about."""
    part = outcome.job.part
    victim = f"{outcome.job.victim}{part.behind}"
    return f"{part.name}: {_METRICS[part.metric]}, {part.goal}, {victim}"


def blocks(outcome: Outcome) -> list[Block]:
    """The tables of a part, each narrow enough for a terminal.

    A row is pixels, queries, and a cell for each line of the paper; lines with a number of queries
    of their own say it in the header.
    """
    lines = list(dict.fromkeys((cell.attack, cell.variant) for cell in outcome.cells))
    own = {(e.paper, e.variant): e.queries for e in outcome.job.part.lines if e.queries}
    shared = [cell for cell in outcome.cells if (cell.attack, cell.variant) not in own]
    places = list(dict.fromkeys((cell.pixels, cell.queries) for cell in shared))
    found = {(cell.attack, cell.variant, cell.pixels, cell.queries): cell for cell in outcome.cells}
    made = []
    for some in _chunks(lines):
        rows = [
            (
                str(pixels),
                str(queries),
                *(_text(found[*line, pixels, own.get(line, queries)]) for line in some),
            )
            for pixels, queries in places
        ]
        headers = (_header(*line, own.get(line)) for line in some)
        made.append(Block(("pixels", "queries", *headers), tuple(rows)))
    return made


def claims(outcome: Outcome) -> Block:
    """What became of the claims of the paper's text."""
    rows = tuple(
        (
            textwrap.fill(claim.claim, _WIDTH),
            str(claim.pixels),
            " and ".join(map(str, dict.fromkeys(claim.queries))),
            _difference(claim),
            claim.verdict,
        )
        for claim in outcome.claims
    )
    return Block(("the paper says", "pixels", "queries", "ours", "verdict"), rows, worded=1)


def all_blocks(outcome: Outcome) -> list[Block]:
    """The tables of a part and, if the paper's text claims something, what became of that."""
    if outcome.album is not None:
        return album.album_blocks(outcome.album)
    return [*blocks(outcome), claims(outcome)] if outcome.claims else blocks(outcome)


def notes(outcome: Outcome) -> list[str]:
    """What a reader of the numbers should know."""
    said = _about_levels(outcome)
    if outcome.album is not None:
        said = album.album_notes(outcome.album, outcome)
    if outcome.claims:
        verdicts = [claim.verdict for claim in outcome.claims]
        counts = (f"{verdicts.count(verdict)} {verdict}" for verdict in get_args(ClaimVerdict))
        said.append(f"claims of the paper's text: {', '.join(counts)}")
    if outcome.errors:
        said.append(
            f"{outcome.errors} results cannot be counted (victim failed, or a success did not "
            f"pass verification)"
        )
    return said


def _about_levels(outcome: Outcome) -> list[str]:
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
    return said


def markdown(done: Reproduction) -> str:
    """The whole as Markdown."""
    about = f"{done.preset.summary} ({done.preset.dataset}). {introduction(done)}"
    text = [f"# {done.preset.name}", about]
    for outcome in done.outcomes:
        text.append(f"## {plain(title(outcome))}")
        for block in all_blocks(outcome):
            lines = [block.headers, ("---:",) * len(block.headers), *block.rows]
            text.append("\n".join(f"| {' | '.join(map(_one_line, line))} |" for line in lines))
        text.append("\n".join(f"- {plain(note)}" for note in notes(outcome)))
    if done.left_out:
        text.append("\n".join(f"- left out: {plain(reason)}" for reason in done.left_out))
    return "\n\n".join(text) + "\n"


def picture(done: Reproduction, path: str | Path) -> bool:
    """Draw our numbers against the paper's; False if there are none to compare.

    Where the paper has a figure and no table, our numbers are drawn as a figure instead: over the
    pixels, or over the queries if there is one budget. Of single photographs, these are drawn.
    """
    for outcome in done.outcomes:
        if outcome.album is not None and outcome.album.photographs:
            album_picture(outcome.album, done.preset.name, outcome.job.victim, path)
            return True
    # matplotlib takes half a second to import, and only this needs it
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = done.preset.place is not None
    points = [
        (o, [c for c in o.cells if c.low is not None and (drawn or c.paper is not None)])
        for o in done.outcomes
    ]
    points = [(outcome, cells) for outcome, cells in points if cells]
    if not points:
        return False
    figure = Figure(figsize=(1 + 4 * len(points), 5), layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(1, len(points), squeeze=False)[0]
    for axes, (outcome, cells) in zip(all_axes, points, strict=True):
        part = outcome.job.part
        here = plot_text(f"{outcome.job.victim}{part.behind}")
        axes.set_title(f"paper: {part.model}\nhere: {here}", fontsize=8)
        if drawn:
            _draw_figure(axes, cells)
        else:
            _draw_against_paper(axes, cells)
        axes.legend(fontsize=8)
    figure.suptitle(done.preset.name)
    save_figure(figure, path, dpi=150)
    return True


def _draw_against_paper(axes: Axes, cells: Sequence[Cell]) -> None:
    axes.plot((0, 100), (0, 100), color="0.8", linewidth=1)
    for label, colour, mine in _lines(cells):
        _draw_ours(axes, [cell.paper or 0.0 for cell in mine], mine, colour, label, "o")
    axes.set(xlim=(-2, 102), ylim=(-2, 102), aspect="equal")
    axes.set_xlabel(f"paper: {_METRICS[cells[0].metric]} (%)")
    axes.set_ylabel("ours (%), 95 % interval")


def _draw_figure(axes: Axes, cells: Sequence[Cell]) -> None:
    over = "pixels" if len({cell.pixels for cell in cells}) > 1 else "queries"
    for label, colour, mine in _lines(cells):
        own = {cell.queries for cell in mine}
        if over == "pixels" and len(own) == 1:
            label += f", {own.pop()} queries"
        _draw_ours(axes, [getattr(cell, over) for cell in mine], mine, colour, label, "o-")
        known = [cell for cell in mine if cell.paper is not None]
        places = [getattr(cell, over) for cell in known]
        axes.plot(places, [cell.paper or 0.0 for cell in known], "x", color=colour, markersize=6)
    known_any = any(cell.paper is not None for cell in cells)
    axes.set(ylim=(-2, 102), xlabel=f"{over} (x: the paper's number)" if known_any else over)
    axes.set_ylabel(f"{_METRICS[cells[0].metric]} (%), 95 % interval")


def _draw_ours(
    axes: Axes, places: Sequence[float], cells: Sequence[Cell], colour: str, label: str, style: str
) -> None:
    """Points with their intervals."""
    # rounding may leave the end of an interval on the wrong side of a rate of 0 or 100
    below = [max(0.0, cell.ours - (cell.low or 0)) for cell in cells]
    above = [max(0.0, (cell.high or 0) - cell.ours) for cell in cells]
    axes.errorbar(
        places,
        [cell.ours for cell in cells],
        [below, above],
        fmt=style,
        markersize=4,
        linewidth=1,
        color=colour,
        label=label,
    )


def _lines(cells: Sequence[Cell]) -> Iterator[tuple[str, str, list[Cell]]]:
    """Label, colour and cells of each line."""
    for at, line in enumerate(dict.fromkeys((c.attack, c.variant) for c in cells)):
        mine = [cell for cell in cells if (cell.attack, cell.variant) == line]
        yield ", ".join(filter(None, line)), COLOURS[at % len(COLOURS)], mine


def _header(attack: str, variant: str, queries: int | None) -> str:
    own = f"{queries} queries" if queries else ""
    return textwrap.fill(", ".join(filter(None, (attack, variant, own))), _WIDTH)


def _difference(claim: CheckedClaim) -> str:
    """With a sign where it is one."""
    if math.isnan(claim.value):
        return "-"
    sign = "+" if len(claim.queries) > 1 else ""
    if claim.low is None or claim.high is None:
        return f"{claim.value:{sign}.1f} [few images]"
    return f"{claim.value:{sign}.1f} [{claim.low:{sign}.0f}, {claim.high:{sign}.0f}]"


def _text(cell: Cell) -> str:
    ours = "-" if math.isnan(cell.ours) else f"{cell.ours:.1f}"
    ends = "" if cell.low is None or cell.high is None else f" [{cell.low:.0f}, {cell.high:.0f}]"
    paper = "-" if cell.paper is None else f"{'*' * cell.outside}{cell.paper:.1f}"
    return f"{ours}{ends} {paper:>5}"


def _one_line(text: str) -> str:
    return plain(text.replace("\n", " "))


def _chunks(lines: Sequence[tuple[str, str]]) -> list[Sequence[tuple[str, str]]]:
    """Groups of at most `_MOST` lines, as equal as can be."""
    size = math.ceil(len(lines) / math.ceil(len(lines) / _MOST))
    return [lines[at : at + size] for at in range(0, len(lines), size)]
