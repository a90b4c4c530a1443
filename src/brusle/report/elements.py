"""What the HTML pages are made of: the document around them, tables, notices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from brusle.report.listings import Listing, TableCell
from brusle.report.markup import Html, join, tag

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_LONG = 40  # text that may take several lines


def document(title: str, top: Html, sections: Mapping[str, tuple[str, Html]]) -> str:
    """A page that needs nothing else.

    Args:
        title: of the window.
        top: what stands above the links to the sections.
        sections: for each its heading and what it holds, by an id; empty ones are left out.
    """
    shown = {key: both for key, both in sections.items() if both[1]}
    links = [tag("a", heading, href=f"#{key}") for key, (heading, _) in shown.items()]
    style = Path(__file__).with_name("page.css").read_text()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", title),
        tag("style", Html(style)),
    )
    body = tag(
        "body",
        tag("header", top),
        tag("nav", *links, aria_label="Sections"),
        tag(
            "main",
            *(
                tag("section", tag("h2", heading), inner, id=key)
                for key, (heading, inner) in shown.items()
            ),
        ),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[TableCell]],
    caption: str,
    kind: str | None = None,
) -> Html:
    """A table that scrolls by itself on a narrow screen.

    Args:
        headers: of the columns.
        rows: cells, a whole ``td`` as `Html`, or text, or a rate. The first heads its row.
        caption: what it shows.
        kind: a class of the style sheet.
    """
    head = [tag("th", text, scope="col") for text in headers]
    body = [tag("tr", tag("th", first, scope="row"), *map(_cell, rest)) for first, *rest in rows]
    made = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", tag("tr", *head)),
        tag("tbody", *body),
        class_=kind,
    )
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(content: TableCell) -> Html:
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return tag("td", content, class_="text" if len(content) > _LONG else None)
    if not content.count:
        return tag("td", "-")
    low, high = (f"{100 * end:.0f}" for end in content.interval)
    return tag("td", tag("b", f"{100 * content.value:.1f}"), " ", tag("small", f"[{low}, {high}]"))


def listing_table(listing: Listing, remarks: Sequence[str] = ()) -> Html:
    """A table that Markdown has, too, and remarks below it; nothing of nothing."""
    made = table(listing.headers, listing.rows, listing.caption) if listing.rows else ""
    return join(made, bullets(remarks))


def notice(title: str, lines: Sequence[str]) -> Html:
    """A box that cannot be overlooked."""
    return tag("div", tag("h3", title), *(tag("p", line) for line in lines), class_="notice")


def bullets(lines: Sequence[str]) -> Html:
    """A list; nothing of nothing."""
    return tag("ul", *(tag("li", line) for line in lines)) if lines else Html()
