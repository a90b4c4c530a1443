"""Reading HTML pages as a browser does."""

from html.parser import HTMLParser


class Reader(HTMLParser):
    """Elements with their attributes, tables as text; complains about what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
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
        self.text += data
        if "td" in self._open or "th" in self._open:
            self.tables[-1][-1][-1] += data

    def table(self, header: str) -> list[dict[str, str]]:
        """The rows of the table that has this header."""
        (found,) = [t for t in self.tables if header in t[0]]
        return [dict(zip(found[0], line, strict=True)) for line in found[1:]]
