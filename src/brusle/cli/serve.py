"""``brusle serve``."""

from __future__ import annotations

import ipaddress
import os
import shlex
from pathlib import Path

import click

from brusle.cli.hosting import port_option, told_to_end
from brusle.cli.options import victim_options
from brusle.cli.output import json_option, print_json, say
from brusle.defaults import FORMATS
from brusle.errors import InputError

_SHARE = click.FloatRange(0, 1)


@click.command()
@victim_options
@click.option(
    "--as",
    "format",
    type=click.Choice(FORMATS),
    default="oip",
    show_default=True,
    help="The service to imitate: Open Inference Protocol V2, TensorFlow Serving, Google Cloud "
    "Vision, Amazon Rekognition, or plain JSON.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@port_option
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Most labels of a list, where the format answers with lists.",
)
@click.option(
    "--most",
    type=click.IntRange(min=1),
    help="Most images of one call. Default: 64; google-vision 16, rekognition 1.",
)
@click.option(
    "--latency",
    help="How long answers take at least: 50ms, or lognormal:50ms,500ms (median and 99th "
    "percentile).",
)
@click.option("--rate", help="Most images in a time, as in 600/min; what is beyond it gets a 429.")
@click.option("--fail", type=_SHARE, default=0.0, help="Share of calls that get a 429, 500 or 503.")
@click.option("--drop", type=_SHARE, default=0.0, help="Share of calls that are hung up on.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same faults.")
@click.option(
    "--key",
    metavar="NAME",
    help="Environment variable with the key that requests must carry. Default: no key.",
)
@click.option(
    "--books",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that gets a line of JSON for each call before its answer leaves; GET /-/books has "
    "the sums.",
)
@json_option("Print address and victim as one line of JSON.")
def command(
    victim: str,
    device: str,
    defences: tuple[str, ...],
    timeout: float | None,
    format: str,
    host: str,
    port: int,
    top: int,
    most: int | None,
    latency: str | None,
    rate: str | None,
    fail: float,
    drop: float,
    seed: int,
    key: str | None,
    books: Path | None,
    as_json: bool,
) -> None:
    """Put a victim behind an HTTP server that imitates a service.

    For rehearsals before money is spent, and for tests: it can be slow, busy, broken or hang up,
    and keeps books of its own. Prints one line when it is ready, with the command that attacks it.
    Ends with Ctrl-C.
    """
    from brusle.evaluation.running.victim import VictimSpec
    from brusle.serving import Server

    if not _is_loopback(host):
        say(f"warning: {host} can be reached from other machines", err=True)
    server = Server(
        VictimSpec(victim, device, defences, timeout).open(),
        format,
        host=host,
        port=port,
        top=top,
        most=most,
        latency=latency,
        rate=rate,
        fail=fail,
        drop=drop,
        seed=seed,
        key=None if key is None else _key(key),
        books=books,
    )
    with told_to_end() as told, server:
        if as_json:
            print_json({"url": server.url, "port": server.port, "victim": server.name}, indent=None)
        else:
            attack = shlex.join(["brusle", "evaluate", "--victim", server.name])
            say(f"{victim} answers at {server.url}; attack it with: {attack}")
        told.wait()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _key(variable: str) -> str:
    key = os.environ.get(variable, "")
    if not key:
        raise InputError(f"the environment variable {variable} is not set: put the key there")
    return key
