"""What the HTML pages are made of: the document around them, tables, notices, scripts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from brusle.report.listings import Listing, TableCell
from brusle.report.markup import Html, join, tag

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_LONG = 40  # text that may take several lines


def document(
    title: str,
    top: Html,
    sections: Mapping[str, tuple[str, Html]],
    *,
    scripts: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    scripted: Collection[str] = (),
) -> str:
    """A page that needs nothing else.

    Args:
        title: of the window.
        top: what stands above the links to the sections.
        sections: for each its heading and what it holds, by an id; empty ones are left out.
        scripts: what runs when the page is there; nothing else can.
        data: what they read, as JSON, by an id.
        scripted: sections that make no sense without scripts, which must show them.
    """
    shown = {key: both for key, both in sections.items() if both[1]}
    links = [
        tag("a", heading, href=f"#{key}", **_hidden(key in scripted))
        for key, (heading, _) in shown.items()
    ]
    style = Path(__file__).with_name("page.css").read_text()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy(scripts)),
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
                tag("section", tag("h2", heading), inner, id=key, **_hidden(key in scripted))
                for key, (heading, inner) in shown.items()
            ),
        ),
        *(_data_block(key, value) for key, value in (data or {}).items()),
        *(tag("script", Html(script)) for script in scripts),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def policy(scripts: Sequence[str]) -> str:
    """What a page may do: show what it holds, and run these scripts."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in scripts]
    allowed = " ".join(f"'sha256-{digest.decode()}'" for digest in hashes)
    return f"{_POLICY}; script-src {allowed}" if allowed else _POLICY


def _data_block(key: str, value: Any) -> Html:
    """JSON that no browser runs; without ``<`` nothing in it can end it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return tag("script", Html(text), type="application/json", id=key)


def _hidden(scripted: bool) -> dict[str, str]:
    return {"hidden": "", "data_scripted": ""} if scripted else {}


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
    kind = "words" if listing.worded == len(listing.headers) else None
    made = table(listing.headers, listing.rows, listing.caption, kind) if listing.rows else ""
    return join(made, bullets(remarks))


def notice(title: str, lines: Sequence[str]) -> Html:
    """A box that cannot be overlooked."""
    return tag("div", tag("h3", title), *(tag("p", line) for line in lines), class_="notice")


def bullets(lines: Sequence[str]) -> Html:
    """A list; nothing of nothing."""
    return tag("ul", *(tag("li", line) for line in lines)) if lines else Html()


def preformatted(text: str) -> Html:
    """Text whose lines stay as they are."""
    return tag("pre", *(join(line, Html("\n")) for line in text.splitlines()))
