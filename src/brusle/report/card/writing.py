"""A card as Markdown, as a page that needs nothing else, and as a PDF."""

from __future__ import annotations

import base64
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from brusle.errors import InputError
from brusle.files import written
from brusle.packages import need
from brusle.report.card.content import Card, Part
from brusle.report.curve_sheet import draw_charts
from brusle.report.curves import charts
from brusle.report.elements import (
    bullets,
    document,
    listing_table,
    notice,
    preformatted,
    table,
)
from brusle.report.markdown import listing_markdown, plain
from brusle.report.markup import Html, join, tag
from brusle.report.page import number_cards
from brusle.report.page_numbers import curve_section
from brusle.text import shown

_OVER = "Robustness to a handful of changed pixels"


def card_markdown(card: Card) -> str:
    """Everything but the pictures."""
    blocks = [
        f"# {plain(card.title)}",
        f"**Unfinished.** {plain(card.state)}" if card.state else "",
        " ".join(map(plain, card.lead)),
    ]
    for part in card.parts.values():
        blocks += [f"## {part.heading}", *_part_markdown(part)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _part_markdown(part: Part) -> list[str]:
    return [
        *map(_with_code, part.text),
        "\n".join(f"- {plain(name)}: {plain(value)}" for name, value in part.facts.items()),
        *(listing_markdown("", listing) for listing in part.tables),
        "\n".join(f"- {plain(point)}" for point in part.points),
        *(f"{_with_code(said)}:\n\n{_indented(code)}" for said, code in part.code.items()),
    ]


def _with_code(text: str) -> str:
    """Our own sentence, in which commands stand between backticks."""
    words = text.split("`")
    return "`".join(word if at % 2 else _plain_in_line(word) for at, word in enumerate(words))


def _plain_in_line(text: str) -> str:
    """Text that Markdown leaves as it is, with the spaces at its ends."""
    inner = plain(text)
    return " " * text.startswith(" ") + inner + " " * (text.endswith(" ") and len(text) > 1)


def _indented(code: str) -> str:
    """Lines as code, which nothing in them can end."""
    lines = [shown(line) for line in code.splitlines()]
    return "\n".join(f"    {line}" for line in lines)


def card_html(card: Card) -> str:
    """The page; it has the report's style, for light, dark and paper."""
    return _page(card, curve_section(card.facts.content))


def _page(card: Card, curves: Html) -> str:
    content = card.facts.content
    lines = [line.replace(" %", "\N{NO-BREAK SPACE}%") for line in card.lead]
    top = join(
        tag("p", _OVER, class_="over"),
        tag("h1", card.title),
        notice("Unfinished", [card.state]) if card.state else "",
        tag("div", *(tag("p", line) for line in lines), class_="lead"),
        tag("div", *number_cards(content), class_="cards"),
    )
    sections = {name: (part.heading, _part_html(part)) for name, part in card.parts.items()}
    heading, results = sections["results"]
    sections["results"] = (heading, join(results, curves))
    return document(card.title, top, sections)


def _part_html(part: Part) -> Html:
    facts = table(("", ""), part.facts.items(), part.heading, "words facts") if part.facts else ""
    return join(
        *(tag("p", *_inline(text)) for text in part.text),
        facts,
        *map(listing_table, part.tables),
        bullets(part.points),
        *(
            join(tag("p", *_inline(f"{said}:")), preformatted(code))
            for said, code in part.code.items()
        ),
    )


def _inline(text: str) -> list[object]:
    return [tag("code", word) if at % 2 else word for at, word in enumerate(text.split("`"))]


def card_pdf(card: Card, path: Path) -> None:
    """Write the page as a PDF; needs WeasyPrint, which is kept from fetching anything."""
    weasyprint: Any = need("weasyprint", "a card as PDF", InputError)
    # the pictures that the page holds, and nothing from elsewhere
    fetcher = weasyprint.urls.URLFetcher(allowed_protocols=["data"])
    page = weasyprint.HTML(string=_page(card, _drawn_curves(card)), url_fetcher=fetcher)
    with written(path) as file:
        page.write_pdf(str(file))


def _drawn_curves(card: Card) -> Html:
    """The charts as a picture: WeasyPrint does not know the page's colours in SVG."""
    found = charts({report.setting: report.steps for report in card.facts.content.settings})
    if not found:
        return Html()
    with TemporaryDirectory(prefix="brusle-") as place:
        path = Path(place) / "curve.png"
        draw_charts(found, "", path)
        data = base64.b64encode(path.read_bytes()).decode()
    return tag(
        "p", tag("img", src=f"data:image/png;base64,{data}", alt="Curves", style="width:100%")
    )
