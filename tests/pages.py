"""Reading HTML pages as a browser does."""

import json
from html.parser import HTMLParser
from typing import Any

from brusle.report.scripts import REPORT, script


class Reader(HTMLParser):
    """Elements with their attributes, scripts, tables as text; complains about what stays open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data) -> None:
        if "style" in self._open:
            return
        if "script" in self._open:  # which nobody reads
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
            return
        self.text += data
        if "td" in self._open or "th" in self._open:
            self.tables[-1][-1][-1] += data

    def data(self) -> dict[str, Any]:
        """What scripts read; complains about scripts that are not the report's own."""
        ours, found = [script(name) for name in REPORT], {}
        for attributes, text in self.scripts:
            if attributes:
                assert attributes["type"] == "application/json" and "<" not in text
                found[attributes["id"]] = json.loads(text)
            else:
                assert text in ours
        return found

    def table(self, header: str) -> list[dict[str, str]]:
        """The rows of the table that has this header."""
        (found,) = [t for t in self.tables if header in t[0]]
        return [dict(zip(found[0], line, strict=True)) for line in found[1:]]
