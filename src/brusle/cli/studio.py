"""``brusle studio``."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from brusle.cli.hosting import port_option, told_to_end
from brusle.cli.output import json_option, print_json, say


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", type=click.Path(path_type=Path))
@click.option(
    "--victim",
    "victims",
    multiple=True,
    help="A classifier to choose from, beside the bundled ones; see `brusle list victims`. Repeat "
    "for several.",
)
@click.option(
    "--data",
    multiple=True,
    help="Images to choose from, beside the sample; see `brusle list data`. Repeat for several.",
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1, ...")
@port_option
@click.option(
    "--open/--no-browser",
    "opens",
    default=False,
    help="Open the page in a browser, or (the default) only print its address.",
)
@json_option("Print address, port and token as one line of JSON.")
def command(
    runs: tuple[Path, ...],
    victims: tuple[str, ...],
    data: tuple[str, ...],
    device: str,
    port: int,
    opens: bool,
    as_json: bool,
) -> None:
    """Watch attacks live in a page on this machine, and the run folders RUN as they are written.

    The page offers the bundled classifiers and images and those that you name here, takes images
    that are dropped on it, and opens the run folders that you name and those below runs/. It sends
    nothing anywhere. Who opens it needs the token in its address, which is another one each time.
    Ends with Ctrl-C.
    """
    from brusle.studio import Studio

    studio = Studio(victims, data, runs, port=port, device=device)
    with told_to_end() as told, studio:
        if as_json:
            facts = {"url": studio.url, "port": studio.port, "token": studio.token}
            print_json(facts, indent=None)
        else:
            say(f"the studio is at {studio.url} (end it with Ctrl-C)")
        if opens:
            webbrowser.open(studio.url)
        told.wait()
