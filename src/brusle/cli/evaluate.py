"""``brusle evaluate``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from brusle.cli.options import (
    data_option,
    eot_option,
    search_options,
    targets_option,
    victim_options,
)

if TYPE_CHECKING:
    from rich.console import Console

    from brusle.attacks.base import AnyAttack
    from brusle.evaluation import Run


@click.command()
@victim_options
@data_option
@click.option(
    "--goal",
    "goals",
    multiple=True,
    type=click.Choice(["untargeted", "targeted"]),
    help="Leave the true class, or reach a random other one. Repeat for both; both by default.",
)
@click.option(
    "--pixels",
    multiple=True,
    type=click.IntRange(min=1),
    help="Pixel budget; repeat for several. Default: 2 and 5 untargeted, 10 and 20 targeted.",
)
@search_options(queries=300, several=True)
@click.option(
    "--standard",
    is_flag=True,
    help="Instead of --attack, the standard ensemble: every strong attack that the victim allows, "
    "each with --queries, on the images that withstood those before.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
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
@click.option("--batch-size", type=click.IntRange(min=1), help="Most images per model call.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Run folder. Default: runs/ and the time. A folder that was interrupted is continued.",
)
def command(
    victim: str,
    device: str,
    defences: tuple[str, ...],
    data: str,
    goals: tuple[Literal["untargeted", "targeted"], ...],
    pixels: tuple[int, ...],
    specs: tuple[str, ...],
    minimal: bool,
    queries: int,
    seed: int,
    as_json: bool,
    standard: bool,
    limit: int,
    targets: str,
    pairs: Path | None,
    eot: int,
    batch_size: int | None,
    out: Path | None,
) -> int:
    """Attack many images; print a table and write a run folder.

    Without options this is the demo: the bundled CIFAR-10 ResNet-20 against BruSLe on 100 of the
    bundled test images, untargeted and targeted. The run folder gets rows.csv and rows.json (a
    row per image), run.json (settings, versions, summary), pairs.json (images and targets, with
    hashes), gallery.png, curve.png (success by number of queries), and every adversarial image as
    PNG. results.sqlite holds every finished attack from the moment it is finished: the same command
    with the same --out goes on where it was interrupted, and one with more attacks or budgets adds
    them.
    """
    from rich.console import Console

    from brusle.attacks import make
    from brusle.cli.display import Display
    from brusle.cli.options import number_or_all, open_victim
    from brusle.evaluation import DEFAULT_PIXELS, GOALS, evaluate

    goals = goals or GOALS
    if standard and (minimal or specs != ("brusle",)):
        raise click.UsageError("--standard chooses the attacks: leave --attack and --minimal out")
    model = open_victim(victim, device, defences)

    def attacks(budget: int) -> list[AnyAttack]:
        if standard:
            from brusle.attacks.standard import standard as ensemble

            return [ensemble(model, budget, queries)]
        return [make(spec, budget, queries, minimal) for spec in specs]

    console = Console(stderr=as_json)
    with Display(console) as display:
        run = evaluate(
            model,
            data,
            {g: [a for p in pixels or DEFAULT_PIXELS[g] for a in attacks(p)] for g in goals},
            goals,
            out or Path("runs") / time.strftime("%Y%m%d-%H%M%S"),
            pairs=pairs,
            targets=number_or_all(targets),
            limit=limit,
            seed=seed,
            batch_size=batch_size,
            eot=eot,
            on_progress=display.update,
        )
    return _show(run, console, as_json)


def _show(run: Run, console: Console, as_json: bool) -> int:
    """Print the table, write the gallery, and say where things are."""
    from brusle.cli import VICTIM_FAILED
    from brusle.report.curves import curve
    from brusle.report.gallery import gallery, run_examples
    from brusle.report.tables import summary_table

    assert run.folder is not None
    console.print(summary_table(run))
    for note in run.notes:
        console.print(f"[yellow]note[/]: {note}")
    curve(run, run.folder / "curve.png")
    examples = run_examples(run)
    if examples:
        gallery(examples, run.folder / "gallery.png", f"{run.victim} on {run.data.name}")
    if run.resumed:
        console.print(f"{run.resumed} attacks were stored already and not run again")
    console.print(f"{run.seconds:.0f} s; rows, summary and pictures are in [bold]{run.folder}[/]")
    if run.errors:
        console.print(
            f"[red]{run.errors} results cannot be counted[/] (victim failed, or a success did "
            f"not pass verification): see the column error of rows.csv"
        )
    if as_json:
        click.echo(json.dumps(run.as_dict() | {"out": str(run.folder)}, indent=2))
    return VICTIM_FAILED if run.errors else 0
