"""``brusle card``."""

from __future__ import annotations

from pathlib import Path

import click

from brusle.cli.output import json_option, print_json, say

_PDF = ".pdf"


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="FILE.md, FILE.html or FILE.pdf (needs brusle[pdf]), or FILE.json, which holds what "
    "--json prints. Default: card.html in the run folder.",
)
@json_option("Print all that the card says as JSON instead.")
def command(run: Path, out: Path | None, as_json: bool) -> None:
    """Write what the folder RUN is evidence of, and of what not: a robustness card.

    What was tested and how, results with intervals, reasons to trust and to doubt them, what was
    not tested, hashes and versions, how to get the same again, and which clauses of NIST AI RMF and
    the EU AI Act ask for such evidence. It reads what is stored and asks no victim. Folders of
    files are left out, so that the card can be handed on. It is evidence and no certificate.
    """
    import json

    from brusle.evaluation.storing.runs import Run
    from brusle.files import require_plain
    from brusle.locking import is_written
    from brusle.names import require_ending
    from brusle.report.card import card_html, card_markdown, card_of, card_pdf
    from brusle.report.files import PAGES, write_page

    path = out or run / "card.html"
    if out is None:
        require_plain(path)
    require_ending(path, [*PAGES, _PDF])
    writing = is_written(run)  # first: if it has ended by now, what is read next is final
    opened = Run.open(run)
    with opened.store:
        card = card_of(opened, writing)
    if as_json:
        print_json(card.as_dict())
        if out is None:
            return
    if path.suffix.lower() == _PDF:
        card_pdf(card, path)
    else:
        write_page(
            path,
            html=lambda: card_html(card),
            markdown=lambda: card_markdown(card),
            json=lambda: json.dumps(card.as_dict(), indent=2),
        )
    say(f"card written to {path}", err=as_json)
