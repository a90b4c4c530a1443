"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import click

from brusle import defaults
from brusle.cli.output import json_option
from brusle.names import whole_number
from brusle.terms import Pace, Terms, parse_price
from brusle.text import brief

if TYPE_CHECKING:
    from brusle.evaluation.running.engines import Engine

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="Most seconds that one call of the victim may take; a longer one is the victim's trouble. "
    "Default: no limit.",
)


def victim_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--victim``, ``--device``, ``--defence`` and ``--timeout``."""
    options = (
        click.option(
            "--victim",
            default=defaults.VICTIM,
            show_default=True,
            help="The classifier under test; see `brusle list victims`.",
        ),
        click.option(
            "--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, ..."
        ),
        click.option(
            "--defence",
            "defences",
            multiple=True,
            help="A defence before the victim, as in rnd:0.02; see `brusle list defences`. Repeat "
            "for several; the first is the innermost.",
        ),
        timeout_option,
    )
    return apply_all(options, command)


def terms_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """On which terms a service is asked; the command gets them as ``terms``."""
    options = (
        click.option(
            "--i-am-authorised",
            "authorised",
            is_flag=True,
            help="You may test this service: it is yours, or its owner allows it. Not needed on "
            "this machine. Or set BRUSLE_AUTHORISED=1.",
        ),
        click.option("--rate", help="Most images sent to a service, as in 1800/min or 10/s."),
        click.option(
            "--concurrency",
            type=click.IntRange(min=1),
            default=Terms.concurrency,
            show_default=True,
            help="Most calls of a service that are under way at once.",
        ),
        click.option("--price", help="What an image costs, as in 1.5/1000 (for a thousand)."),
        click.option(
            "--budget",
            type=click.FloatRange(min=0),
            help="Most money, over all lives of a run folder; needs --price.",
        ),
        click.option(
            "--requests",
            type=click.IntRange(min=0),
            help="Most images sent to a service, over all lives of a run folder, answered or not.",
        ),
    )

    @functools.wraps(command)
    def with_terms(
        *args: Any,
        authorised: bool,
        rate: str | None,
        concurrency: int,
        price: str | None,
        budget: float | None,
        requests: int | None,
        **values: Any,
    ) -> Any:
        terms = Terms(
            authorised,
            rate=None if rate is None else Pace.parse(rate),
            concurrency=concurrency,
            price=0.0 if price is None else parse_price(price),
            budget=budget,
            requests=requests,
        )
        return command(*args, terms=terms, **values)

    return apply_all(options, with_terms)


def reopening_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a run was of, if it is not to be opened by the names that the run has for it."""
    options = (
        click.option("--victim", help="The classifier, by another name than the run knows it by."),
        click.option(
            "--defence",
            "defences",
            multiple=True,
            help="A defence before it, instead of the run's; repeat for several, the innermost "
            "first.",
        ),
        click.option(
            "--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, ..."
        ),
        click.option("--data", help="Where the original images are. Default: as the run says."),
    )
    return apply_all(options, command)


def look_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--look`` and ``--layer``; the command gets them as ``wish``."""
    options = (
        click.option(
            "--look",
            type=click.Choice(
                ["auto", "gradcam", "attention", "attention-last", "occlusion", "none"]
            ),
            default="auto",
            show_default=True,
            help="How to see where the victim looks: GradCAM for convolutional nets, attention for "
            "transformers, occlusion for the others, which asks them 65 times per image.",
        ),
        click.option("--layer", help="The layer of GradCAM, by name. Default: the last that fits."),
    )

    @functools.wraps(command)
    def with_wish(*args: Any, look: Any, layer: str | None, **values: Any) -> Any:
        from brusle.explaining.asking import Wish

        return command(*args, wish=Wish(look, layer), **values)

    return apply_all(options, with_wish)


data_option = click.option(
    "--data", default=defaults.DATA, show_default=True, help="The images; see `brusle list data`."
)
targets_option = click.option(
    "--targets",
    default=str(defaults.TARGETS),
    show_default=True,
    help="Target classes per image: all, or so many random ones.",
)
eot_option = click.option(
    "--eot",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Answers of a randomised victim to average for every candidate; each is a query.",
)


def log_option(what: str, flag: str = "--log", required: bool = False) -> Decorator:
    """``--log``, or under another name; the command gets the names as ``trackers``."""
    return click.option(
        flag,
        "trackers",
        multiple=True,
        required=required,
        help=f"{what}: mlflow:FOLDER, wandb:PROJECT or tensorboard:FOLDER, or just mlflow, ... "
        f"Options stand behind a question mark (docs/tracking.md). Repeat for several.",
    )


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--workers`` and ``--address``."""
    options = (
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            help="Processes that attack at once, each with one core or GPU; needs brusle[ray]. "
            "Default: this process, with all cores.",
        ),
        click.option(
            "--address",
            help="Ray cluster to join, as in auto or 10.0.0.5:6379; needs brusle[ray].",
        ),
    )
    return apply_all(options, command)


retry_option = click.option(
    "--retry-errors",
    is_flag=True,
    help="Run stored errors and unverified results again. Those that are the victim's trouble (no "
    "connection, busy, out of memory) are run again without it.",
)


def gate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--at``, ``--min-robust`` and ``--confidence``: what a gate asks for."""
    options = (
        click.option(
            "--at",
            multiple=True,
            metavar="PIXELS,QUERIES",
            help="Where a gate measures, as in 5px,300q: a pixel budget of the run, and queries up "
            "to its limit; 5px is at its limit. Repeat for several, which must all hold.",
        ),
        click.option(
            "--min-robust",
            multiple=True,
            type=float,
            metavar="PERCENT",
            help="Robust accuracy must be at least so much. Give one for all --at, or one for each "
            "in the same order.",
        ),
        click.option(
            "--confidence",
            type=float,
            default=95.0,
            show_default=True,
            metavar="PERCENT",
            help="How surely a pass, and a failure, is not false.",
        ),
    )
    return apply_all(options, command)


def engine(workers: int | None, address: str | None) -> Engine | None:
    """The engine that `engine_options` describe; None is this process."""
    if workers is None and address is None:
        return None
    from brusle.evaluation.running.ray_engine import Ray

    return Ray(workers, address)


def number_or_all(text: str) -> Literal["all"] | int:
    """The value of `targets_option`."""
    if text == "all":
        return "all"
    number = whole_number(text)
    if number is None:
        said = f"{brief(text)} is neither 'all' nor a number"
        raise click.BadParameter(said, param_hint="--targets")
    return number


def search_options(queries: int, several: bool = False) -> Decorator:
    """``--attack``, ``--minimal``, ``--queries``, ``--seed`` and ``--json``.

    Args:
        queries: default of ``--queries``.
        several: ``--attack`` and ``--seed`` may be repeated.
    """
    again = " Repeat for several." if several else ""
    options = (
        click.option(
            "--attack",
            "attacks" if several else "spec",
            default=defaults.ATTACKS if several else "brusle",
            multiple=several,
            show_default=True,
            help="The attack, with options as in brusle:palette=uniform,colours=2 or, quoted, "
            f"brusle?palette=uniform&colours=2; see `brusle list attacks`.{again}",
        ),
        click.option(
            "--minimal",
            is_flag=True,
            help="Find the fewest pixels within --queries, at most --pixels.",
        ),
        click.option(
            "--queries",
            type=click.IntRange(min=1),
            default=queries,
            show_default=True,
            help="Most queries per image.",
        ),
        click.option(
            "--seed",
            "seeds" if several else "seed",
            type=int,
            default=(0,) if several else 0,
            multiple=several,
            show_default=True,
            help=f"Same seed, same result.{again}",
        ),
        json_option("Print the result as JSON."),
    )
    return lambda command: apply_all(options, command)


def apply_all(options: tuple[Decorator, ...], command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with several options, which its help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command
