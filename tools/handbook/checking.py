"""Is the site whole? Links and headings lead somewhere, and no page needs a network to be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from handbook.overview import navigation
from handbook.staging import DOCS

_LOADED = {  # attributes whose address a browser opens by itself
    ("script", "src"),
    ("link", "href"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
}


@dataclass
class Page(HTMLParser):
    """What a page links to, and what can be linked to in it.

    Attributes:
        text: its HTML.
        links: addresses of links.
        loaded: addresses that a browser opens to show the page.
        anchors: what can stand behind the ``#``.
    """

    text: str
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif (tag, name) in _LOADED and value:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href") and value:
                self.links.append(value)


@cache
def read(path: Path) -> Page:
    """A page of the site."""
    return Page(path.read_text(encoding="utf-8"))


def problems(site: Path) -> Iterator[str]:
    """What is wrong with a site, a line each."""
    yield from missing_from_navigation()
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # its addresses depend on where the site is put
            continue
        here, page = path.relative_to(site), read(path)
        for address in page.loaded:
            if urlsplit(address).scheme not in ("", "data"):
                yield f"{here}: a browser would load {address}"
            elif not leads_somewhere(path, address):
                yield f"{here}: there is no {address}"
        for address in page.links:
            if not leads_somewhere(path, address):
                yield f"{here}: the link {address} leads nowhere"


def leads_somewhere(page: Path, address: str) -> bool:
    """Whether a file, and the heading in it, is there; other hosts are not asked."""
    parts = urlsplit(address)
    if parts.scheme:
        return True
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if path.is_dir():
        path /= "index.html"
    if not path.is_file():
        return False
    anchor = unquote(parts.fragment)
    return not anchor or path.suffix != ".html" or anchor in read(path).anchors


def missing_from_navigation() -> Iterator[str]:
    """Pages that nobody would find."""
    named = {page for _, pages in navigation() for _, page in pages}
    for page in sorted(DOCS.glob("*.md")):
        if page.name not in named:
            yield f"mkdocs.yml: the navigation lacks {page.name}"
