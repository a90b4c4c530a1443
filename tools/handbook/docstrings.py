"""Docstrings in Google style as Markdown."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

_SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")
_SECTION = re.compile(rf"^({'|'.join(_SECTIONS)}):$")
_TITLES = {"Args": "Arguments"}
_ENTRY = re.compile(r"^(\*{0,2}[\w., ]+): +(.*)$")


def markdown(docstring: str) -> str:
    """A docstring as Markdown: what it says first, then a list for each of its sections."""
    parts = [_section(title, lines) for title, lines in _sections(inspect.cleandoc(docstring))]
    return "\n\n".join(part for part in parts if part)


def first_sentence(docstring: str) -> str:
    """The first line, which is a sentence, as Markdown."""
    return _text(inspect.cleandoc(docstring).partition("\n\n")[0].replace("\n", " "))


def _sections(docstring: str) -> Iterator[tuple[str, list[str]]]:
    """Titles, the first of them empty, with the lines below them."""
    title, lines = "", list[str]()
    for line in docstring.splitlines():
        if found := _SECTION.match(line):
            yield title, lines
            title, lines = found[1], []
        elif title and line and not line.startswith(" "):  # a paragraph after a section
            yield title, lines
            title, lines = "", [line]
        else:
            lines.append(line)
    yield title, lines


def _section(title: str, lines: list[str]) -> str:
    if not title:
        return _prose(lines)
    head = f"**{_TITLES.get(title, title)}**"
    body = textwrap.dedent("\n".join(lines)).strip("\n").splitlines()
    if title in ("Returns", "Yields"):
        return f"{head}\n\n{_prose(body)}"
    return f"{head}\n\n" + "\n".join(_entries(body))


def _entries(lines: list[str]) -> Iterator[str]:
    """A line of a list for each entry; further lines of one are indented."""
    entry = ""
    for line in lines:
        if line.startswith(" ") and entry:
            entry += f" {line.strip()}"
            continue
        if entry:
            yield _entry(entry)
        entry = line
    if entry:
        yield _entry(entry)


def _entry(text: str) -> str:
    found = _ENTRY.match(text)
    return f"- `{found[1]}`: {_text(found[2])}" if found else f"- {_text(text)}"


def _prose(lines: list[str]) -> str:
    """Paragraphs and lists as they are; what is indented by four is code."""
    parts = list[str]()
    for block in re.split(r"\n{2,}", "\n".join(lines).strip("\n")):
        if block.startswith("    "):
            parts.append(f"```python\n{textwrap.dedent(block)}\n```")
        elif block.startswith("import "):  # the docstring of the package begins with its example
            parts.append(f"```python\n{block}\n```")
        elif block:
            parts.append(_text(block))
    return "\n\n".join(parts)


def _text(text: str) -> str:
    """Code in single backticks; outside of code nothing is taken for HTML."""
    parts = re.split(r"(`[^`]*`)", text.replace("``", "`"))
    return "".join(
        part if part.startswith("`") else part.replace("<", "&lt;").replace("|", "\\|")
        for part in parts
    )
