"""``llms.txt``: what the documentation has, a line for each page, for readers that are programs.

The form is that of llmstxt.org: a title, a summary, and lists of links with descriptions. It
follows the navigation of the site; the descriptions stand beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from handbook.staging import PROJECT, ROOT

CONFIGURATION = ROOT / "mkdocs.yml"
FILE = ROOT / "llms.txt"


def navigation() -> list[tuple[str, list[tuple[str, str]]]]:
    """Sections of the site with the titles and files of their pages; a folder ends in a slash."""
    return [
        (title, [*_pages(title, inside)])
        for section in settings()["nav"]
        for title, inside in section.items()
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


def settings() -> dict[str, Any]:
    """What mkdocs.yml says."""
    said: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
    return said


def _written(home: Callable[[str], Path], root: Path) -> str:
    said = settings()
    parts = [f"# {said['site_name']}", f"> {said['site_description']}"]
    for section, pages in navigation():
        lines = [
            f"- [{name}]({path.relative_to(root).as_posix()}): {said['extra']['about'][page]}"
            for title, page in pages
            for name, path in _files(title, home(page))
        ]
        if lines:
            parts += [f"## {section}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _files(title: str, path: Path) -> Iterator[tuple[str, Path]]:
    """A page; or the index of a folder, which is there only after it has been made."""
    if path.suffix:
        yield title, path
    elif path.is_dir():
        yield title, path / "index.md"
