"""``brusle report``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from brusle.cli.output import json_option, print_json, print_text, readable_option, say


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="FILE.html, or FILE.md or FILE.json, which hold what --md and --json print. Default: "
    "report.html in the run folder.",
)
@click.option("--data", help="Where the original images are. Default: as the run says.")
@readable_option("--md", "as_markdown", "Print a summary in Markdown instead.")
@json_option("Print all numbers as JSON instead.")
def command(
    run: Path, out: Path | None, data: str | None, as_markdown: bool, as_json: bool
) -> None:
    """Write what the folder RUN holds as one HTML page; also while it is running.

    The page needs no network and no other files. It holds the result in words, reasons to doubt
    it, tables with intervals, curves, classes, seeds, comparisons, examples and provenance. In a
    browser that runs its scripts, every row can be found and looked at: what was changed and, after
    `brusle evaluate --trace`, how the search came to it.
    """
    from brusle.evaluation.storing.runs import Run
    from brusle.files import require_plain
    from brusle.locking import is_written
    from brusle.names import require_ending
    from brusle.report.content import gather
    from brusle.report.files import PAGES, write_page
    from brusle.report.markdown import report_markdown
    from brusle.report.page import report_page

    if as_json and as_markdown:
        raise click.UsageError("choose one of --md and --json")
    path = out or run / "report.html"
    if out is None:
        require_plain(path)
    require_ending(path, PAGES)
    writing = is_written(run)  # first: if it has ended by now, what is read next is final
    opened = Run.open(run, data)
    with opened.store:
        content = gather(opened, writing)
        if as_json:
            print_json(content.as_dict())
        elif as_markdown:
            print_text(report_markdown(content).removesuffix("\n"))
        if out is None and (as_json or as_markdown):
            return
        write_page(
            path,
            html=lambda: report_page(content, opened),
            markdown=lambda: report_markdown(content),
            json=lambda: json.dumps(content.as_dict(), indent=2),
        )
    say(f"report written to {path}", err=as_json or as_markdown)
