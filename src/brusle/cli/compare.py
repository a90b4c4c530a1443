"""``brusle compare``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from brusle.report.comparison import Section


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "--baseline",
    metavar="ATTACK",
    help="The attack that others of the same run are compared with. Default: its first.",
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    help="Number of queries at which success rates are compared. Default: the query limit.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    runs: tuple[Path, ...], baseline: str | None, queries: int | None, as_json: bool
) -> int:
    """Compare runs, or the attacks of one run, on the same images.

    Every other RUN is compared with the first, and in each RUN every other attack with the first.
    Settings are matched by goal, pixels, seed, eot and attack; the only setting of a goal and
    number of pixels also with the only one of the other run. Only problems (image, label, target)
    that both attacked count. Exits with 2 if nothing could be compared.
    """
    from contextlib import ExitStack

    from rich.console import Console
    from rich.markup import escape

    from brusle.cli import BAD_INPUT
    from brusle.evaluation.runs import Run
    from brusle.report.comparison import compare_runs

    with ExitStack() as stack:
        opened = [Run.open(folder) for folder in runs]
        for run in opened:
            stack.enter_context(run.store)
        sections = compare_runs(opened, baseline, queries)
    if as_json:
        click.echo(json.dumps([section.as_dict() for section in sections], indent=2))
    else:
        console = Console(highlight=False)
        for section in sections:
            console.print(f"[bold]{escape(section.title)}[/]")
            if section.lines:
                console.print(_table(section))
            for text in _remarks(section):
                console.print(escape(text), soft_wrap=False)
            console.print()
    done = any(line.found is not None for section in sections for line in section.lines)
    return 0 if done else BAD_INPUT


def _table(section: Section) -> Table:
    """One line for each match; fits a terminal of 80 columns."""
    from rich.markup import escape

    from brusle.report.tables import estimate, number, plain_table

    table = plain_table()
    table.add_column("setting", overflow="fold", min_width=12)
    table.add_column("base\nASR %", justify="right", no_wrap=True)
    table.add_column("other\nASR %", justify="right", no_wrap=True)
    table.add_column("difference\n\\[95 % CI]", justify="right", no_wrap=True)
    table.add_column("queries, ratio\n\\[95 % CI]", justify="right", no_wrap=True)
    table.add_column("pairs", justify="right", no_wrap=True)
    for line in section.lines:
        difference = ratio = "-"
        if line.found is not None:
            difference = estimate(line.found.difference, 0, "+.1f", 100)
            ratio = estimate(line.found.ratio, 1, ".2f")
        table.add_row(
            escape(section.label(line)),
            *(number(100 * rate.value, 1) for rate in line.rates),
            escape(difference),
            escape(ratio),
            str(line.rates[0].count),
        )
    at = sorted({line.queries for line in section.lines})
    table.caption = (
        f"ASR within {' or '.join(map(str, at))} queries, of the pairs that both attacked. "
        f"Difference in points, other minus base; ratio of mean queries, a failure counting as the "
        f"limit. *: the interval excludes 0 (ratio: 1), as it does by chance in 1 of 20 lines."
    )
    return table


def _remarks(section: Section) -> list[str]:
    failed = [f"{section.label(line)}: {line.problem}" for line in section.lines if line.problem]
    return [
        *(f"note: {note}" for note in section.notes),
        *(f"no match: {name}" for name in section.unmatched),
        *(f"not compared: {text}" for text in failed),
    ]
