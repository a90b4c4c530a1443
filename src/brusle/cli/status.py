"""``brusle status``."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from brusle.cli.output import json_option, print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from brusle.evaluation.record import Setting


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


def look(folder: Path) -> dict[str, Any]:
    """What is stored in a run folder, and whether a run is writing to it."""
    from dataclasses import asdict

    from brusle.evaluation.storing.store import JustStarting, Retries, Store
    from brusle.locking import is_written

    writing = is_written(folder)  # first: if it has ended by now, what is read next is final
    try:
        with Store.read(folder) as store:
            about, settings, counts = store.about(), store.settings(), store.counts()
            again = asdict(store.retries())
    except JustStarting:
        writing, about, settings, counts, again = True, None, [], {}, asdict(Retries(0, 0))
    lines = [_setting(setting, counts.get(setting.number, {})) for setting in settings]
    facts = {} if about is None else about.as_dict()
    found = {"run": str(folder), "writing": writing, "about": facts, "settings": lines}
    return found | {"runs_again": again}


def _setting(setting: Setting, counts: Mapping[str, int]) -> dict[str, Any]:
    from brusle.evaluation.statistics import success_rate_of
    from brusle.outcomes import Status

    ordered = {status: counts[status] for status in get_args(Status) if status in counts}
    stored, rate = sum(counts.values()), success_rate_of(counts)
    found = {"stored": stored, "counts": ordered, "asr": rate.as_dict()}
    return {"name": setting.name, **setting.model_dump(), **found}


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
