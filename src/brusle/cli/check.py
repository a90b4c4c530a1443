"""``brusle check``."""

from __future__ import annotations

import json

import click

from brusle.cli.options import data_option, victim_options

_MARKS = {"ok": ("ok", "green"), "warning": ("note", "yellow"), "failure": ("FAIL", "red")}


@click.command()
@victim_options
@data_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Images to look at, evenly over the classes.",
)
@click.option(
    "--images",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Images of the evaluation whose cost is estimated.",
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="Query limit of that evaluation.",
)
@click.option("--batch-size", type=click.IntRange(min=1), help="Most images per model call.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(
    victim: str,
    device: str,
    defences: tuple[str, ...],
    data: str,
    limit: int,
    images: int,
    queries: int,
    batch_size: int | None,
    as_json: bool,
) -> int:
    """Look at a victim and data before an evaluation.

    Is the model in evaluation mode, are its answers finite, deterministic and independent of the
    batch, do classes, shape and range of the images fit, how accurate and how quick is it? Exits
    with 3 if results of an evaluation could not be trusted.
    """
    from brusle.cli import VICTIM_FAILED
    from brusle.cli.options import open_victim
    from brusle.evaluation import check

    model = open_victim(victim, device, defences)
    preflight = check(
        model, data, limit=limit, images=images, queries=queries, batch_size=batch_size
    )
    if as_json:
        click.echo(json.dumps(preflight.as_dict(), indent=2))
        return VICTIM_FAILED if preflight.failed else 0
    click.secho(f"{preflight.victim} on {preflight.data}", bold=True)
    for finding in preflight.findings:
        mark, colour = _MARKS[finding.verdict]
        click.echo(f"{click.style(f'{mark:>4}', fg=colour)}  {finding.topic:17}  {finding.text}")
        if finding.verdict != "ok":
            click.secho(f"{'':25}see {finding.anchor}", dim=True)
    verdict = "results cannot be trusted yet" if preflight.failed else "ready for an evaluation"
    click.echo(f"{verdict}; this check took {preflight.queries} queries")
    return VICTIM_FAILED if preflight.failed else 0
