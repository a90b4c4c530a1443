"""``brusle gate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from brusle.cli.options import gate_options
from brusle.cli.output import json_option, print_json, say
from brusle.defaults import GOALS

if TYPE_CHECKING:
    from brusle.evaluation.record import GoalName


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@gate_options
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="RUN0",
    help="A run of another victim on the same images, to compare with; needs --max-drop.",
)
@click.option(
    "--max-drop",
    type=float,
    metavar="POINTS",
    help="Robust accuracy must be at most so many points below that of --baseline.",
)
@click.option(
    "--attack",
    default="",
    help="Only rows of this attack. Default: an image is robust if no attack of the run fooled it.",
)
@click.option(
    "--goal",
    type=click.Choice(GOALS),
    help="Only attacks with this goal. Default: untargeted, if the run has such attacks there.",
)
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write a JUnit report: a test case for each condition.",
)
@click.option(
    "--markdown",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write Markdown, for the summary of a job.",
)
@json_option("Print as JSON.")
def command(
    run: Path,
    at: tuple[str, ...],
    min_robust: tuple[float, ...],
    baseline: Path | None,
    max_drop: float | None,
    confidence: float,
    attack: str,
    goal: GoalName | None,
    junit: Path | None,
    markdown: Path | None,
    as_json: bool,
) -> int:
    """Say whether a RUN is robust enough, is not, or has too few images to tell.

    It passes if the lower bound of robust accuracy is at least --min-robust, and fails if the upper
    bound is below. A pass is false with a probability of at most 100 - confidence percent, and so
    is a failure. Errors and attacks that are not stored may be anything: the verdict holds for all
    that they may be. Of a run that was made with --until-decided the bounds allow for that.

    Exits with 0 if it passes, 4 if it fails, 5 if there are too few images to tell, and with 2 if
    the request is wrong.
    """
    from brusle.cli import EXIT_OF
    from brusle.evaluation.gating import gate
    from brusle.files import write_text
    from brusle.report.gate_pages import gate_junit, gate_markdown

    verdict = gate(
        run,
        at,
        min_robust,
        baseline=baseline,
        max_drop=max_drop,
        confidence=confidence,
        attack=attack,
        goal=goal,
    )
    for file, text in ((junit, gate_junit), (markdown, gate_markdown)):
        if file is not None:
            write_text(file, text(verdict))
    if as_json:
        print_json(verdict.as_dict())
    else:
        for line in verdict.lines():
            say(line)
    return EXIT_OF[verdict.result]
