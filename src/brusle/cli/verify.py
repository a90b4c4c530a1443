"""``brusle verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from brusle.cli.options import reopening_options, terms_options, timeout_option
from brusle.cli.output import json_option, print_json, say

if TYPE_CHECKING:
    from brusle.terms import Terms


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@reopening_options
@click.option("--batch-size", type=click.IntRange(min=1), help="Most images per model call.")
@timeout_option
@terms_options
@click.option(
    "--replay",
    is_flag=True,
    help="Ask nobody: take the answers from the journal in RUN, as services' runs have one.",
)
@json_option("Print the findings as JSON.")
def command(
    run: Path,
    victim: str | None,
    defences: tuple[str, ...],
    device: str,
    data: str | None,
    batch_size: int | None,
    timeout: float | None,
    terms: Terms,
    replay: bool,
    as_json: bool,
) -> int:
    """Look at every row in the folder RUN, and ask the victim again for every success.

    Rows must fit their checksums, their images and their settings, and not contradict themselves.
    Adversarial images are rebuilt from the originals and the stored edits, must keep the pixel
    budget, get the stored answer, and reach the goal after an 8-bit PNG round trip. Exits with 3
    if something does not hold. A randomised victim is asked once for each, and an answer that
    misses the goal is no failure.

    A service is asked only if you name it with --victim, since that may cost money; --replay checks
    the run by the answers that its journal holds.

    A victim, defence or data that run code of others (python:, plugins, programs in files) are not
    opened because the folder names them: name them with --victim, --defence and --data. The run's
    other defences are put before --victim, too.
    """
    from brusle.cli import VICTIM_FAILED
    from brusle.evaluation.storing.recheck import recheck

    found = recheck(
        run,
        victim,
        data,
        defences=defences or None,
        device=device,
        batch_size=batch_size,
        timeout=timeout,
        terms=terms,
        replay=replay,
    )
    if as_json:
        print_json(found.as_dict())
        return VICTIM_FAILED if found.failed else 0
    how = " in one fresh draw of a randomised victim" if found.randomised else ""
    say(f"{found.held} of {found.checked} successes hold{how} ({found.victim})")
    say(f"{found.sound} of {found.rows} rows are as they were stored")
    if found.digest:
        say(f"SHA-256 of the rows: {found.digest}")
    for mismatch in found.mismatches:
        aim = "" if mismatch.target is None else f" to {mismatch.target}"
        image = f" {mismatch.image}{aim}:" if mismatch.image else ""
        say(f"  {mismatch.attack}:{image} {mismatch.reason}")
    return VICTIM_FAILED if found.failed else 0
