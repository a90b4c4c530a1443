"""``llms.txt``: what the documentation has, a line for each page, for readers that are programs.

The form is that of llmstxt.org: a title, a summary, and lists of links with descriptions. It follows
the navigation of the site; a description is the first sentence of its page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from handbook.staging import PROJECT, ROOT

CONFIGURATION = ROOT / "mkdocs.yml"
FILE = ROOT / "llms.txt"
_LONG = 200  # letters of a description


def navigation() -> list[tuple[str, list[tuple[str, str]]]]:
    """Sections of the site with the titles and files of their pages; a folder ends in a slash."""
    nav = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))["nav"]
    return [
        (title, [*_pages(title, inside)]) for section in nav for title, inside in section.items()
    ]


def _pages(title: str, inside: Any) -> Iterator[tuple[str, str]]:
    if isinstance(inside, str):
        yield title, inside
        return
    for entry in inside:
        yield from entry.items()


def for_repository() -> str:
    """The file in the repository, whose links lead to the sources of the pages."""
    homes = {f"project/{Path(name).stem.lower()}.md": name for name in PROJECT}
    return _written(lambda page: ROOT / homes.get(page, f"docs/{page}"), ROOT)


def for_site(folder: Path) -> str:
    """The file of the site, where every page lies beside its HTML as Markdown."""
    return _written(lambda page: folder / page, folder)


def _written(home: Callable[[str], Path], root: Path) -> str:
    settings = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    parts = [f"# {settings['site_name']}", f"> {settings['site_description']}"]
    for section, pages in navigation():
        lines = [
            f"- [{name}]({path.relative_to(root).as_posix()}): {description(path)}"
            for title, page in pages
            for name, path in _files(title, home(page))
        ]
        if lines:
            parts += [f"## {section}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _files(title: str, path: Path) -> Iterator[tuple[str, Path]]:
    """A page; or those of a folder, which is there only after it has been made."""
    if path.suffix:
        yield title, path
        return
    for page in sorted(path.glob("[!S]*.md")):
        yield page.stem, page


def description(page: Path) -> str:
    """The first sentence of a page, as plain text."""
    text = re.sub(r"<!--.*?-->|^(```|~~~).*?^\1", "", page.read_text("utf-8"), flags=re.S | re.M)
    blocks = (block.strip() for block in re.split(r"\n\s*\n", text))
    paragraphs = (b for b in blocks if b and not re.match(r"#|!\[|\||\d+\. ", b))
    first = next(paragraphs, "").removeprefix("- ")
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split())).replace("**", "")
    sentence = re.split(r"(?<=[.:?])\s(?=[A-Z`])", plain)[0].rstrip(":")
    return sentence if len(sentence) <= _LONG else f"{sentence[:_LONG].rpartition(' ')[0]} ..."
