"""Reports and comparisons as files, in the format that their name says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from brusle.files import write_text
from brusle.names import require_ending

PAGES = (".html", ".htm", ".md", ".json")


def write_page(
    path: Path,
    html: Callable[[], str],
    markdown: Callable[[], str],
    json: Callable[[], str],
) -> None:
    """Write one of several texts, the one that the ending of ``path`` asks for.

    Args:
        path: the file; one of `PAGES`.
        html: makes the page.
        markdown: makes the Markdown.
        json: makes the JSON.
    """
    make = {".md": markdown, ".json": json}.get(require_ending(path, PAGES), html)
    write_text(path, make().rstrip("\n") + "\n")
