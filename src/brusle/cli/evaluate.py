"""``brusle evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from brusle.cli.options import (
    data_option,
    engine,
    engine_options,
    eot_option,
    gate_options,
    log_option,
    retry_option,
    search_options,
    targets_option,
    terms_options,
    victim_options,
)
from brusle.cli.output import print_json, say
from brusle.defaults import GOALS, LIMIT, PIXELS, QUERIES
from brusle.outcomes import Success

if TYPE_CHECKING:
    from rich.console import Console

    from brusle.evaluation import Gate, Run
    from brusle.evaluation.running.plan import Plan
    from brusle.terms import Terms


def _usual_pixels() -> str:
    return ", ".join(f"{' and '.join(map(str, PIXELS[goal]))} {goal}" for goal in GOALS)


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Plan in YAML, with the same names as the options (goals, pixels, attacks, seeds, ...). "
    "Options that are given as well win.",
)
@victim_options
@terms_options
@data_option
@click.option(
    "--goal",
    "goals",
    multiple=True,
    type=click.Choice(GOALS),
    help="Leave the true class, or reach a random other one. Repeat for both; both by default.",
)
@click.option(
    "--pixels",
    multiple=True,
    type=click.IntRange(min=1),
    help=f"Pixel budget; repeat for several. Default: {_usual_pixels()}.",
)
@search_options(queries=QUERIES, several=True)
@click.option(
    "--standard",
    is_flag=True,
    help="Instead of --attack, the standard ensemble: every strong attack that the victim allows, "
    "each with --queries, on the images that withstood those before.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=LIMIT,
    show_default=True,
    help="Most images, evenly over the classes.",
)
@targets_option
@click.option(
    "--pairs",
    type=click.Path(path_type=Path),
    help="Manifest of images and targets from `brusle pairs`, instead of --data, --limit and "
    "--targets.",
)
@eot_option
@click.option(
    "--success",
    type=click.Choice(get_args(Success)),
    default="top1",
    show_default=True,
    help="What counts as one where a victim gives lists of labels: another label is on top, the "
    "true one has left the list, or what is on top was not in the list of the clean image.",
)
@click.option(
    "--trace",
    is_flag=True,
    help="Also keep what each search finds on its way, a few kilobytes each, of the attacks that "
    "this command runs: for `brusle explain`, `brusle film` and the report.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Keep every answer in the run folder, so that nothing is ever asked twice. Those of a "
    "service are always kept.",
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    help="Run folder, or its journal.sqlite, to answer from: the victim is not asked at all.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say how many queries, how much time and how much money it takes, and ask nothing.",
)
@log_option("Also write the run to an experiment tracker when it ends")
@click.option(
    "--until-decided",
    is_flag=True,
    help="Attack images in a random order and stop when a gate of --at and --min-robust is "
    "decided; --limit is the most, by default all images. Ask with `brusle gate`.",
)
@gate_options
@engine_options
@retry_option
@click.option("--batch-size", type=click.IntRange(min=1), help="Most images per model call.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Run folder. Default: runs/ and a name that is the same for the same plan, images and "
    "weights. What it holds is not run again.",
)
@click.pass_context
def command(
    context: click.Context,
    /,
    config: Path | None,
    device: str,
    timeout: float | None,
    terms: Terms,
    trace: bool,
    record: bool,
    replay: Path | None,
    dry_run: bool,
    trackers: tuple[str, ...],
    as_json: bool,
    batch_size: int | None,
    workers: int | None,
    address: str | None,
    retry_errors: bool,
    out: Path | None,
    until_decided: bool,
    at: tuple[str, ...],
    min_robust: tuple[float, ...],
    confidence: float,
    **_: object,
) -> int:
    """Attack many images; print a table and write a run folder.

    Without options this is the demo: the bundled CIFAR-10 ResNet-20 against BruSLe and PixelBandit
    on 100 of the bundled test images, untargeted and targeted. What is plainly wrong with a victim
    (it only guesses, wants another range of input, answers NaN) is said first and kept with the
    results; `brusle check` looks closer. The run folder gets rows.csv and rows.json (a row per
    image), run.json (settings, versions, summary), pairs.json (images and targets, with hashes),
    gallery.png, curve.png (success by number of queries, or with --minimal robust accuracy by
    pixels), and every adversarial image as PNG. results.sqlite holds every attack that is shown as
    finished: the same command with the same --out goes on where it was interrupted, and one with
    more attacks or budgets adds them.
    """
    from rich.console import Console

    from brusle.evaluation import evaluate
    from brusle.evaluation.running.display import Display

    until = _until(until_decided, at, min_robust, confidence)
    plan = _plan(context, config, until)
    if dry_run:
        return _show_estimate(plan, out, device, terms, as_json, until is not None)
    console = Console(stderr=as_json)
    with Display(console) as display:
        run = evaluate(
            plan,
            out=out or "auto",
            device=device,
            timeout=timeout,
            terms=terms,
            record=record,
            replay=replay,
            batch_size=batch_size,
            engine=engine(workers, address),
            retry_errors=retry_errors,
            trace=trace,
            log=trackers,
            until=until,
            on_progress=display.update,
            on_warning=display.warn,
        )
    return _show(run, console, as_json, trace, until)


def _until(
    wanted: bool, at: tuple[str, ...], min_robust: tuple[float, ...], confidence: float
) -> Gate | None:
    """The gate to decide, if there is one."""
    from brusle.errors import InputError
    from brusle.evaluation.gating import Gate

    if wanted:
        return Gate.of(at, min_robust, confidence=confidence)
    if at or min_robust:
        raise InputError(
            "--at and --min-robust are for --until-decided: give it, or leave them out"
        )
    return None


def _plan(context: click.Context, config: Path | None, until: Gate | None) -> Plan:
    """The plan of the file, if there is one, with what was given on the command line."""
    from click.core import ParameterSource

    from brusle.cli.options import number_or_all
    from brusle.evaluation.running.plan import Plan
    from brusle.yaml_files import read_yaml

    given = {
        name: value
        for name, value in context.params.items()
        if name in Plan.model_fields
        and context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    if "targets" in given:
        given["targets"] = number_or_all(given["targets"])
    usual = {} if until is None else {"limit": None}  # who stops in time needs no other limit
    if config is None:
        return Plan.of(usual | given)
    plan = Plan.of(usual | read_yaml(config, "plan") | given, str(config))
    for key, line in plan.risks():
        if key not in given:
            click.echo(f"{config} names the {line}", err=True)
    return plan


def _show_estimate(
    plan: Plan, out: Path | None, device: str, terms: Terms, as_json: bool, until: bool
) -> int:
    """What it would take; if all images are needed, where it ends when something is decided."""
    from brusle.evaluation.running.estimate import estimate

    found = estimate(plan, out or "auto", device=device, terms=terms, until=until)
    if as_json:
        print_json(found.as_dict())
    else:
        for line in found.lines():
            say(line)
    return 0


def _show(run: Run, console: Console, as_json: bool, trace: bool, until: Gate | None) -> int:
    """Print the table, and say where things are."""
    from brusle.cli import VICTIM_FAILED
    from brusle.evaluation.gating.judging import answer
    from brusle.evaluation.running.display import print_warning
    from brusle.report.tables import flag_lines, summary_table
    from brusle.terminal import escape

    assert run.folder is not None
    console.print(summary_table(run))
    for topic, text in run.warnings.items():
        print_warning(console, f"{topic}: {text}")
    for note in run.notes:
        console.print(f"[yellow]note[/]: {escape(note)}")
    for line in flag_lines(run):
        console.print(f"[yellow]caution[/]: {escape(line)}")
    spending = run.about.sessions[-1].spending
    if spending is not None:
        console.print(escape(spending.told()))
    if run.resumed:
        console.print(f"{run.resumed} attacks were stored already and not run again")
        untraced = run.untraced if trace else 0
        if untraced:
            console.print(
                f"[yellow]note[/]: {untraced} of them were stored without a trace: to have all, "
                f"choose another --out"
            )
    where = f"[bold]{escape(run.folder)}[/]"
    console.print(f"{run.seconds:.0f} s; rows, summary and pictures are in {where}")
    for line in run.logged:
        console.print(escape(line))
    if run.errors:
        console.print(
            f"[red]{run.errors} results cannot be counted[/] (victim failed, or a success did "
            f"not pass verification): see the column error of rows.csv; --retry-errors runs them "
            f"again"
        )
    found = run.as_dict() | {"out": str(run.folder)}
    if until is not None:
        verdict = answer(run, until)
        found["verdict"] = verdict.as_dict()
        for line in verdict.lines():
            console.print(escape(line), highlight=False)
    if as_json:
        print_json(found)
    return VICTIM_FAILED if run.errors else 0
