"""``brusle status``."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from brusle.cli.output import json_option, print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@json_option("Print as JSON; with --watch, a line each.")
@click.option(
    "--watch",
    type=click.FloatRange(min=0, min_open=True, max=86_400),
    callback=lambda context, option, value: _a_number(value),
    metavar="SECONDS",
    help="Look again after so many seconds, until no run writes to the folder.",
)
def command(run: Path, as_json: bool, watch: float | None) -> None:
    """Say how far the evaluation in the folder RUN is; also while it is running."""
    from rich.console import Console

    from brusle.evaluation.storing.progress import look

    console = Console()
    while True:
        found = look(run)
        if as_json:
            print_json(found, indent=None if watch else 2)
        else:
            if watch and console.is_terminal:
                console.clear()
            _show(found, console)
        if watch is None or not found["writing"]:
            return
        time.sleep(watch)


def _a_number(seconds: float | None) -> float | None:
    if seconds is not None and math.isnan(seconds):
        raise click.BadParameter("give a number of seconds")
    return seconds


def _show(found: Mapping[str, Any], console: Console) -> None:
    from brusle.terminal import escape

    about = found["about"]
    state = "[green]a run is writing[/]" if found["writing"] else "no run is writing"
    if found["writing"] and not found["settings"]:
        state = "[green]a run is just starting[/]"
    console.print(f"[bold]{escape(found['run'])}[/]: {state}")
    if about:
        software = about["sessions"][-1]["provenance"]
        versions = [f"{n} {software[n]}" for n in ("brusle", "python", "torch") if n in software]
        weights = f" (weights {about['weights']})" if about["weights"] else ""
        console.print(escape(f"victim {about['victim']}{weights}; {', '.join(versions)}"))
    if found["settings"]:
        console.print(_table(found["settings"]))
    else:
        console.print("no attack has begun yet")
    again = found["runs_again"]
    if count := again["same_command"]:
        console.print(f"{count} failed for the victim's trouble: the same command runs them again")
    if count := again["retry_errors"]:
        console.print(f"{count} errors or unverified results: --retry-errors runs them again")


def _table(settings: list[dict[str, Any]]) -> Table:
    """One line per setting; fits a terminal of 80 columns."""
    from brusle.evaluation.statistics import Rate
    from brusle.report.tables import percent, plain_table
    from brusle.terminal import escape

    table = plain_table()
    table.add_column("goal and attack", overflow="fold", min_width=12)
    table.add_column("pixels", justify="right", no_wrap=True)
    table.add_column("queries", justify="right", no_wrap=True)
    table.add_column("stored", justify="right", no_wrap=True)
    table.add_column("ASR %\n\\[95 % CI]", justify="right", no_wrap=True)
    table.add_column("results", min_width=16)
    for setting in settings:
        rate = Rate(setting["asr"]["hits"], setting["asr"]["count"])
        table.add_row(
            escape(f"{setting['goal']} {setting['name']}"),
            str(setting["pixels"]),
            str(setting["queries"]),
            f"{setting['stored']}/{setting['problems']}",
            f"[bold]{percent(rate)}",
            ", ".join(f"{count} {status}" for status, count in setting["counts"].items()),
        )
    if any(setting["stored"] < setting["problems"] for setting in settings):
        table.caption = "Successes end earlier than failures: an unfinished rate is too high."
    return table
