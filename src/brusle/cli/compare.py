"""``brusle compare``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from brusle.cli.output import json_option, print_text, say

if TYPE_CHECKING:
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
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write it, to FILE.html, FILE.md or FILE.json.",
)
@json_option("Print as JSON.")
def command(
    runs: tuple[Path, ...],
    baseline: str | None,
    queries: int | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Compare runs, or the attacks of one run, on the same images.

    Every other RUN is compared with the first, and in each RUN every other attack with the first.
    Settings are matched by goal, pixels, seed, eot and attack; the only attack of a goal and number
    of pixels also with the only one of the other run. All seeds that both have are pooled. Only
    problems (image, label, target) that both attacked count. A sentence says what all lines say
    together. Exits with 2 if nothing could be compared.
    """
    from contextlib import ExitStack

    from brusle.cli import BAD_INPUT
    from brusle.evaluation.storing.runs import Run
    from brusle.names import require_ending
    from brusle.report.comparison import compare_runs
    from brusle.report.comparison_page import comparison_page
    from brusle.report.files import PAGES, write_page
    from brusle.report.markdown import comparison_markdown

    if out is not None:
        require_ending(out, PAGES)
    with ExitStack() as stack:
        opened = [Run.open(folder) for folder in runs]
        for run in opened:
            stack.enter_context(run.store)
        sections = compare_runs(opened, baseline, queries)
        told = json.dumps([section.as_dict() for section in sections], indent=2)
        if out is not None:
            write_page(
                out,
                html=lambda: comparison_page(sections, opened),
                markdown=lambda: comparison_markdown(sections),
                json=lambda: told,
            )
    if as_json:
        print_text(told)
    else:
        _show(sections)
    if out is not None:
        say(f"comparison written to {out}", err=as_json)
    done = any(line.found is not None for section in sections for line in section.lines)
    return 0 if done else BAD_INPUT


def _show(sections: Sequence[Section]) -> None:
    from rich.console import Console

    from brusle.report.tables import comparison_table
    from brusle.terminal import escape

    console = Console(highlight=False)
    for section in sections:
        console.print(f"[bold]{escape(section.title)}[/]")
        for verdict in section.verdicts:
            console.print(escape(verdict.text))
        if section.lines:
            console.print(comparison_table(section))
        for text in section.remarks():
            console.print(escape(text), soft_wrap=False)
        console.print()
