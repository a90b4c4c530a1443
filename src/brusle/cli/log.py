"""``brusle log``."""

from __future__ import annotations

from pathlib import Path

import click

from brusle.cli.options import log_option
from brusle.cli.output import json_option, print_json, say


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@log_option("Where to write it", "--to", required=True)
@click.option("--data", help="Where the original images are. Default: as the run says.")
@json_option("Print where the run is now as JSON.")
def command(run: Path, trackers: tuple[str, ...], data: str | None, as_json: bool) -> None:
    """Write what the folder RUN holds to experiment trackers; also while it is running.

    Parameters, success and robust accuracy over queries with their intervals, pictures, rows and
    summary. It is what `brusle evaluate --log` writes when a run ends. The same run is not written
    twice: one that has got more rows since then takes the place of what was logged before, or says
    what it replaces. Nothing is sent anywhere unless you name a server, or say mode=online.
    """
    from dataclasses import asdict

    from brusle.evaluation.storing.runs import Run
    from brusle.report.tracking import log

    opened = Run.open(run, data)
    with opened.store:
        found = log(opened, trackers)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    for one in found:
        say(one.told())
