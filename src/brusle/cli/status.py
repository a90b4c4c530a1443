"""``brusle status``."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from brusle.evaluation.metrics import Rate
    from brusle.evaluation.store import Record


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print as JSON; with --watch, a line each.")
@click.option(
    "--watch",
    type=click.FloatRange(min=0, min_open=True),
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
            click.echo(json.dumps(found, indent=None if watch else 2))
        else:
            if watch and console.is_terminal:
                console.clear()
            _show(found, console)
        if watch is None or not found["writing"]:
            return
        time.sleep(watch)


def look(folder: Path) -> dict[str, Any]:
    """What is stored in a run folder, and whether a run is writing to it."""
    from dataclasses import asdict

    from brusle.evaluation.store import Store

    writing = is_written(folder)  # first: if it has ended by now, what is read next is final
    with Store.read(folder) as store:
        about, settings, counts = store.about(), store.settings(), store.counts()
        again = asdict(store.retries())
    lines = [_setting(setting, counts.get(setting.number, {})) for setting in settings]
    found = {"run": str(folder), "writing": writing, "about": about, "settings": lines}
    return found | {"runs_again": again}


def is_written(folder: Path) -> bool:
    """Whether a run holds the lock of the folder at this moment."""
    import fcntl

    from brusle.evaluation.store import LOCK

    path = folder / LOCK
    if not path.is_file():
        return False  # nothing was ever written here
    try:
        with path.open() as lock:
            # shared, so that two who look do not take each other for a run; closing releases it
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _setting(setting: Record, counts: Mapping[str, int]) -> dict[str, Any]:
    from dataclasses import asdict

    from brusle.results import Status

    ordered = {status: counts[status] for status in get_args(Status) if status in counts}
    stored, rate = sum(counts.values()), _rate(counts)
    found = {"stored": stored, "counts": ordered, "asr": rate.as_dict()}
    return {"name": setting.name, **asdict(setting), **found}


def _rate(counts: Mapping[str, int]) -> Rate:
    """Success rate over the images that were classified correctly and without error."""
    from brusle.evaluation.metrics import Rate

    attacked = sum(counts.values()) - counts.get("skipped", 0) - counts.get("error", 0)
    return Rate(counts.get("success", 0), attacked)


def _show(found: Mapping[str, Any], console: Console) -> None:
    from rich.markup import escape

    about = found["about"]
    state = "[green]a run is writing[/]" if found["writing"] else "no run is writing"
    sessions = about.get("sessions", [{}])
    software = sessions[-1].get("provenance", {})
    versions = [f"{name} {software[name]}" for name in ("brusle", "python", "torch") if software]
    console.print(f"[bold]{escape(found['run'])}[/]: {state}")
    if "victim" in about:
        weights = f" (weights {about['weights']})" if about.get("weights") else ""
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
    from rich.markup import escape

    from brusle.evaluation.metrics import Rate
    from brusle.report.tables import percent, plain_table

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
