"""``brusle verify``."""

from __future__ import annotations

from pathlib import Path

import click

from brusle.cli.options import timeout_option
from brusle.cli.output import json_option, print_json, say


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--victim", help="The classifier, by another name than the run knows it by.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, ...")
@click.option("--data", help="Where the original images are. Default: as the run says.")
@click.option("--batch-size", type=click.IntRange(min=1), help="Most images per model call.")
@timeout_option
@json_option("Print the findings as JSON.")
def command(
    run: Path,
    victim: str | None,
    device: str,
    data: str | None,
    batch_size: int | None,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Ask the victim again for every success that is stored in the folder RUN.

    Images are rebuilt from the originals and the stored edits, must keep the pixel budget, and
    must reach the goal after an 8-bit PNG round trip. Exits with 3 if one does not. A randomised
    victim is asked once for each, and an answer that misses the goal is no failure. The run's
    defences are put before --victim, too.
    """
    from brusle.cli import VICTIM_FAILED
    from brusle.evaluation.recheck import recheck

    found = recheck(run, victim, data, device=device, batch_size=batch_size, timeout=timeout)
    if as_json:
        print_json(found.as_dict())
        return VICTIM_FAILED if found.failed else 0
    how = " in one fresh draw of a randomised victim" if found.randomised else ""
    say(f"{found.held} of {found.checked} successes hold{how} ({found.victim})")
    for doubt in found.doubts:
        aim = "" if doubt.target is None else f" to {doubt.target}"
        say(f"  {doubt.attack}: {doubt.image}{aim}: {doubt.reason}")
    return VICTIM_FAILED if found.failed else 0
