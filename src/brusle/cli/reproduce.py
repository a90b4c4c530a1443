"""``brusle reproduce``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from brusle.cli.options import (
    engine,
    engine_options,
    number_or_all,
    retry_option,
    terms_options,
    timeout_option,
)
from brusle.cli.output import json_option, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from brusle.evaluation.paper.jobs import Job
    from brusle.evaluation.paper.reproduce import Reproduction
    from brusle.evaluation.record import Setting
    from brusle.report.blocks import Block
    from brusle.session import Progress
    from brusle.terms import Terms


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
    help="Most images, evenly over the classes. Default: the paper's.",
)
@click.option(
    "--targets",
    callback=lambda context, option, value: None if value is None else number_or_all(value),
    help="Targets of each image: all, or so many random ones. Default: the paper's; with --limit "
    "at most 3, because more of the same image say little more.",
)
@click.option("--queries", type=click.IntRange(min=1), help="A lower query limit than the paper's.")
@click.option(
    "--pixels",
    type=click.IntRange(min=1),
    multiple=True,
    help="Pixel budget instead of the paper's; repeat for several.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same result.")
@engine_options
@retry_option
@click.option("--batch-size", type=click.IntRange(min=1), help="Most images per model call.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, ...")
@timeout_option
@terms_options
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder. Default: runs/ and a name that follows from plan and weights, so that the same "
    "command goes on where it was interrupted.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Print the plans as YAML and run nothing.")
@json_option("Print the result as JSON.")
def command(
    preset: str,
    device: str,
    timeout: float | None,
    terms: Terms,
    batch_size: int | None,
    workers: int | None,
    address: str | None,
    retry_errors: bool,
    out: Path | None,
    only_plan: bool,
    as_json: bool,
    **scale: Any,
) -> int:
    """Run a table of the BruSLe paper and print our numbers beside the paper's.

    PRESET is one of `brusle list presets`. Without options it is as large as in the paper; --limit
    and --queries make it smaller. Where the paper's model is not to be had, a bundled one stands
    in for it, and the output says so. Where the paper has a figure and no table, what its text
    claims is checked: each claim is held, within noise or contradicted. Where the paper attacks a
    web service, one on this machine stands in for it, unless --victim names the service itself,
    which is then asked on the terms that you give (--rate, --price, --budget, ...).

    The folder gets reproduction.json, reproduction.md and reproduction.png, and a run folder for
    each model, which `brusle status`, `verify` and `export` read.
    """
    from rich.console import Console

    from brusle.evaluation.paper.jobs import jobs
    from brusle.evaluation.paper.presets import preset as find
    from brusle.evaluation.paper.reproduce import reproduce

    if only_plan:
        _print_plans(jobs(find(preset), **scale)[0], as_json)
        return 0
    console = Console(stderr=as_json)
    with _Bars(console) as bars:
        done = reproduce(
            preset,
            out=out,
            device=device,
            timeout=timeout,
            terms=terms,
            batch_size=batch_size,
            engine=engine(workers, address),
            retry_errors=retry_errors,
            on_part=bars.begin,
            on_progress=bars.update,
            on_warning=bars.warn,
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
        from brusle.evaluation.running.display import Display
        from brusle.terminal import escape

        self.close()
        self._console.print(escape(f"{job.part.name}: {job.victim}{job.part.behind}"))
        self._display = self.enter_context(Display(self._console))

    def warn(self, text: str) -> None:
        """Called by `evaluate` before the first attack of a part."""
        self._display.warn(text)

    def update(self, setting: Setting, progress: Progress) -> None:
        """Called by `evaluate` after every round."""
        self._display.update(setting, progress)


def _print_plans(todo: Sequence[Job], as_json: bool) -> None:
    import yaml

    plans = [plan.model_dump(mode="json") for job in todo for plan in job.plans]
    if as_json:
        print_json(plans)
    else:
        texts = (yaml.safe_dump(plan, sort_keys=False, default_flow_style=None) for plan in plans)
        click.echo("---\n".join(texts), nl=False)


def _show(done: Reproduction, console: Console, as_json: bool) -> int:
    """Print the tables, write the files, and say where they are."""
    from brusle.cli import VICTIM_FAILED
    from brusle.files import write_text
    from brusle.report.reproduction import all_blocks, introduction, markdown, notes, picture, title
    from brusle.terminal import escape

    write_text(done.folder / "reproduction.md", markdown(done))
    picture(done, done.folder / "reproduction.png")
    console.print(f"\n[bold]{done.preset.name}[/]: {escape(done.preset.summary)}")
    console.print(escape(introduction(done)))
    for outcome in done.outcomes:
        console.print(f"\n[bold]{escape(title(outcome))}[/]")
        for block in all_blocks(outcome):
            console.print(_table(block))
        for note in notes(outcome):
            console.print(escape(f"- {note}"))
        if outcome.resumed:
            console.print(f"- {outcome.resumed} attacks were stored already and not run again")
    for reason in done.left_out:
        console.print(escape(f"- left out: {reason}"))
    console.print(f"{done.seconds:.0f} s; numbers and runs are in [bold]{escape(str(done.folder))}")
    if as_json:
        print_json(done.as_dict() | {"out": str(done.folder)})
    return VICTIM_FAILED if done.errors else 0


def _table(block: Block) -> Table:
    """Fits a terminal of 80 columns; a line between groups of rows."""
    from brusle.report.tables import plain_table

    table = plain_table()
    for at, header in enumerate(block.headers):
        justify: Literal["left", "right"] = "left" if at < block.worded else "right"
        table.add_column(_lines(header), justify=justify, no_wrap=True)
    groups = [row[0] for row in block.rows]
    several = len(set(groups)) < len(groups)
    for at, row in enumerate(block.rows):
        new = at == 0 or groups[at] != groups[at - 1]
        last = several and groups[at + 1 : at + 2] != groups[at : at + 1]
        table.add_row(_lines(row[0]) if new else "", *map(_lines, row[1:]), end_section=last)
    return table


def _lines(text: str) -> str:
    """Text of several lines between the markup of rich."""
    from brusle.terminal import escape

    return "\n".join(map(escape, text.splitlines()))
