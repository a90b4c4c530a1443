"""``brusle check``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from brusle.cli.options import data_option, terms_options, victim_options
from brusle.cli.output import json_option, print_json, say

if TYPE_CHECKING:
    from brusle.evaluation.running.preflight import Effort, Preflight
    from brusle.evaluation.running.service_trial import ServiceTrial
    from brusle.terms import Terms

_MARKS = {"ok": ("ok", "green"), "warning": ("note", "yellow"), "failure": ("FAIL", "red")}


@click.command()
@victim_options
@terms_options
@data_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Images to look at, evenly over the classes. Default: 100; of a service one, in one call.",
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    help="Most queries that the check may take; with few, it looks at fewer images. Default: what "
    "--limit images take.",
)
@click.option(
    "--planned-images",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Images of the evaluation whose cost is estimated.",
)
@click.option(
    "--planned-queries",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="Query limit of that evaluation.",
)
@click.option("--batch-size", type=click.IntRange(min=1), help="Most images per model call.")
@json_option("Print the findings as JSON.")
def command(
    victim: str,
    device: str,
    defences: tuple[str, ...],
    timeout: float | None,
    terms: Terms,
    data: str,
    limit: int | None,
    queries: int | None,
    planned_images: int,
    planned_queries: int,
    batch_size: int | None,
    as_json: bool,
) -> int:
    """Look at a victim and data before an evaluation.

    Is the model in evaluation mode, are its answers finite, deterministic and independent of the
    batch, do classes, shape and range of the images fit, how accurate and how quick is it? Says
    first how many queries that takes. Exits with 3 if results of an evaluation could not be
    trusted.

    A service is tried on one image first: the request (with keys masked), the response and what was
    understood of it are shown, with what an evaluation would cost. With --limit or --queries the
    rest follows.
    """
    from brusle.cli import VICTIM_FAILED
    from brusle.evaluation import check
    from brusle.evaluation.running.service_trial import try_service
    from brusle.evaluation.running.victim import VictimSpec, terms_of

    model = VictimSpec(victim, device, defences, timeout, terms).open()
    if terms_of(model) is not None:
        tried = try_service(model, data, planned_images * planned_queries)
        if not as_json:
            _show_trial(tried)
        elif limit is None and queries is None:
            print_json(tried.as_dict())
        if tried.error or (limit is None and queries is None):
            return VICTIM_FAILED if tried.error else 0
    preflight = check(
        model,
        data,
        limit=limit or 100,
        queries=queries,
        planned_images=planned_images,
        planned_queries=planned_queries,
        batch_size=batch_size,
        on_effort=partial(_announce, as_json),
    )
    if as_json:
        print_json(preflight.as_dict())
    else:
        _show(preflight)
    return VICTIM_FAILED if preflight.failed else 0


def _show_trial(tried: ServiceTrial) -> None:
    """Request, response, what was understood, and what it would cost."""
    parts = (
        ("sent", tried.request),
        ("came back", tried.response),
        ("understood", tried.understood),
    )
    for title, text in parts:
        say(title, bold=True)
        for line in text.splitlines() or ["nothing"]:
            say(f"  {line}")
    say(f"the call took {tried.seconds:.2f} s")
    for line in tried.costs:
        say(line)


def _announce(as_json: bool, effort: Effort) -> None:
    """Before the first query."""
    images, queries, most = effort.images, effort.queries, effort.most
    more = f", or {most} if accuracy is low" if most > queries else ""
    say(f"looks at {images} images with {queries} queries{more}", err=as_json)


def _show(preflight: Preflight) -> None:
    say(f"{preflight.victim} on {preflight.data}", bold=True)
    for finding in preflight.findings:
        mark, colour = _MARKS[finding.verdict]
        click.secho(f"{mark:>4}", fg=colour, nl=False)
        say(f"  {finding.topic:17}  {finding.text}")
        if finding.verdict != "ok":
            say(f"{'':25}see {finding.anchor}", dim=True)
    verdict = "results cannot be trusted yet" if preflight.failed else "ready for an evaluation"
    lost = f", and {preflight.lost} images were sent in vain" if preflight.lost else ""
    say(f"{verdict}; this check took {preflight.queries} queries{lost}")
