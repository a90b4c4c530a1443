"""``brusle reproduce``."""

from __future__ import annotations

import json
import math
import textwrap
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from brusle.evaluation import Setting
    from brusle.evaluation.reproduce import Cell, Job, Outcome, Reproduction
    from brusle.loop import Progress

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
_COLOURS = ("#0b6e99", "#c8553d", "#588157", "#7b4b94", "#b08900", "#3d405b")


@click.command()
@click.argument("preset")
@click.option("--victim", help="Attack this instead of the stand-in for the paper's model.")
@click.option("--part", help="Of a table of several models, run this one only.")
@click.option(
    "--data",
    help="The images. Default: cifar10:test, or the bundled sample if it has not been fetched.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Most images, evenly over the classes; each keeps all its targets. Default: the paper's.",
)
@click.option("--queries", type=click.IntRange(min=1), help="A lower query limit than the paper's.")
@click.option(
    "--pixels",
    type=click.IntRange(min=1),
    multiple=True,
    help="Pixel budget instead of the paper's; repeat for several.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same result.")
@click.option("--batch-size", type=click.IntRange(min=1), help="Most images per model call.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, ...")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder. Default: runs/ and a name that follows from the plan, so that the same command "
    "goes on where it was interrupted.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Print the plans as YAML and run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    preset: str,
    device: str,
    batch_size: int | None,
    out: Path | None,
    only_plan: bool,
    as_json: bool,
    **scale: Any,
) -> int:
    """Run a table of the BruSLe paper and print our numbers beside the paper's.

    PRESET is one of `brusle list presets`. Without options it is as large as in the paper; --limit
    and --queries make it smaller. Where the paper's model is not to be had, a bundled one stands
    in for it, and the output says so.

    The folder gets reproduction.json, reproduction.md and reproduction.png, and a run folder for
    each model, which `brusle status`, `verify` and `export` read.
    """
    from rich.console import Console

    from brusle.evaluation.presets import preset as find
    from brusle.evaluation.reproduce import jobs, reproduce

    if only_plan:
        _print_plans(jobs(find(preset), **scale)[0], as_json)
        return 0
    console = Console(stderr=as_json)
    with _Bars(console) as bars:
        done = reproduce(
            preset,
            out=out,
            device=device,
            batch_size=batch_size,
            on_part=bars.begin,
            on_progress=bars.update,
            **scale,
        )
    return _show(done, console, as_json)


class _Bars(ExitStack):
    """Progress bars for each part by itself: parts have the same settings."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def begin(self, job: Job) -> None:
        """Called by `reproduce` before a part."""
        from brusle.cli.display import Display

        self.close()
        self._console.print(f"{job.part.name}: {job.victim}{job.part.behind}")
        self._display = self.enter_context(Display(self._console))

    def update(self, setting: Setting, progress: Progress) -> None:
        """Called by `evaluate` after every round."""
        self._display.update(setting, progress)


def _print_plans(todo: Sequence[Job], as_json: bool) -> None:
    import yaml

    plans = [plan.model_dump(mode="json") for job in todo for plan in job.plans]
    if as_json:
        click.echo(json.dumps(plans, indent=2))
    else:
        texts = (yaml.safe_dump(plan, sort_keys=False, default_flow_style=None) for plan in plans)
        click.echo("---\n".join(texts), nl=False)


def _show(done: Reproduction, console: Console, as_json: bool) -> int:
    """Print the tables, write the files, and say where they are."""
    from rich.markup import escape

    from brusle.cli import VICTIM_FAILED

    (done.folder / "reproduction.md").write_text(markdown(done))
    picture(done, done.folder / "reproduction.png")
    console.print(f"\n[bold]{done.preset.name}[/]: {escape(done.preset.summary)}")
    console.print(escape(LEGEND))
    for outcome in done.outcomes:
        console.print(f"\n[bold]{escape(title(outcome))}[/]")
        for block in blocks(outcome):
            console.print(_table(block))
        for note in notes(outcome):
            console.print(escape(f"- {note}"))
        if outcome.resumed:
            console.print(f"- {outcome.resumed} attacks were stored already and not run again")
    for reason in done.left_out:
        console.print(escape(f"- left out: {reason}"))
    console.print(f"{done.seconds:.0f} s; numbers and runs are in [bold]{escape(str(done.folder))}")
    if as_json:
        click.echo(json.dumps(done.as_dict() | {"out": str(done.folder)}, indent=2))
    return VICTIM_FAILED if done.errors else 0


def _table(block: Block) -> Table:
    """Fits a terminal of 80 columns; a line between budgets."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for header in block.headers:
        table.add_column(escape(header), justify="right", no_wrap=True)
    budgets = [row[0] for row in block.rows]
    several = len(set(budgets)) < len(budgets)
    for at, row in enumerate(block.rows):
        new = at == 0 or budgets[at] != budgets[at - 1]
        last = several and budgets[at + 1 : at + 2] != budgets[at : at + 1]
        table.add_row(row[0] if new else "", *map(escape, row[1:]), end_section=last)
    return table


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
    part, agreement = outcome.job.part, outcome.agreement
    pairs = f", {outcome.pairs} pairs of image and target" if part.goal == "targeted" else ""
    said = [
        f"victim: {outcome.job.note}",
        f"images: {outcome.images} of {outcome.job.data} (the paper: "
        f"{outcome.paper_images or 'all'}){pairs}, all classified correctly; seed {part.seeds[0]}",
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
                color=_COLOURS[at % len(_COLOURS)],
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
