"""What the site is built from: copies of the pages, with links that hold inside of the site.

Pages link to other files of the repository as its readers need it (``../SECURITY.md``,
``../examples/random_search.py``). The site has no address of a repository to send people to, so it
holds what is linked: project files as pages, source files as pages that show them, and folders as
lists of their files.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from handbook import commands
from handbook.reference import Reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BUILD = ROOT / "build" / "docs"  # what mkdocs.yml names
PROJECT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_FENCE = re.compile(r"^ *(```|~~~)")
_NAVIGATION = "SUMMARY.md"  # where the plugin literate-nav looks for it


class Staging:
    """One folder of pages in the making.

    Attributes:
        folder: where they are put.
    """

    def __init__(self, folder: Path = BUILD) -> None:
        self.folder = folder
        self._shown: list[PurePosixPath] = []  # files and folders that pages link to

    def stage(self) -> None:
        """Make the folder anew, with all pages in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(DOCS, self.folder)
        for page in sorted(DOCS.rglob("*.md")):
            self._put(PurePosixPath(page.relative_to(ROOT).as_posix()))
        for name in PROJECT:
            self._put(PurePosixPath(name))
        self._reference()
        while self._shown:
            self._show(self._shown.pop())

    def _put(self, origin: PurePosixPath) -> None:
        """A page of the repository, at its place in the site."""
        text = (ROOT / origin).read_text(encoding="utf-8")
        if origin.suffix != ".md":
            text = f"# {origin.name.title()}\n\n```text\n{text}```\n"
        self._write(place(origin), with_links(text, lambda target: self._link(origin, target)))

    def _link(self, origin: PurePosixPath, target: str) -> str:
        """Where a link of a page leads in the site."""
        if re.match(r"[a-z]+:|#", target):
            return target
        file, mark, heading = target.partition("#")
        there = PurePosixPath(os.path.normpath(origin.parent / file))
        if not (ROOT / there).exists():
            return target  # the build says so
        if place(there).parts[0] == "source":
            self._shown.append(there)
        return f"{os.path.relpath(place(there), place(origin).parent)}{mark}{heading}"

    def _show(self, origin: PurePosixPath) -> None:
        """A page with the content of a file, or with the files of a folder."""
        path = ROOT / origin
        if path.is_dir():
            names = sorted(p.name for p in path.iterdir() if p.suffix in (".md", ".py", ".yml"))
            body = "\n".join(f"- [`{n}`]({n}.md)" for n in names)
            for name in names:
                self._show(origin / name)
        else:
            kind = {".py": "python", ".yml": "yaml", ".cff": "yaml"}.get(path.suffix, "text")
            body = f"````{kind}\n{path.read_text(encoding='utf-8')}````"
        self._write(place(origin), f"# `{origin}`\n\n{body}\n")

    def _reference(self) -> None:
        reference = Reference()
        pages = reference.pages() | {"commands.md": commands.page()}
        for name, text in {**pages, "index.md": reference.index()}.items():
            self._write(PurePosixPath("reference", name), text)
        titles = {"index.md": "All modules", "commands.md": "Commands"}
        titles |= {module.page: module.name for module in reference.modules}
        entries = "".join(f"* [{title}]({name})\n" for name, title in titles.items())
        self._write(PurePosixPath("reference", _NAVIGATION), entries)

    def _write(self, where: PurePosixPath, text: str) -> None:
        path = self.folder / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def place(origin: PurePosixPath) -> PurePosixPath:
    """Where the site has a file of the repository, both as relative paths."""
    if origin.parts[:1] == ("docs",):
        return PurePosixPath(*origin.parts[1:])
    if str(origin) in PROJECT:
        return PurePosixPath("project", f"{origin.stem.lower()}.md")
    inside = PurePosixPath("source", origin)
    return inside / "index.md" if (ROOT / origin).is_dir() else PurePosixPath(f"{inside}.md")


def with_links(text: str, change: Callable[[str], str]) -> str:
    """A page with other links; code in fences stays as it is."""
    lines, fenced = list[str](), False
    for line in text.splitlines(keepends=True):
        if _FENCE.match(line):
            fenced = not fenced
        lines.append(line if fenced else _LINK.sub(lambda found: change(found[1]), line))
    return "".join(lines)
