"""What stands in fences on pages of the documentation, and what is to be done with it.

A fence is run if its language is ``python`` or ``shell``. Comments, which no reader sees, say more.
A comment ``setup: shell`` or ``setup: python`` has lines of code that are run as well. Before a
fence that is run,

- ``<!-- exit 3 -->`` is the exit code that it must have;
- ``<!-- background -->``: it runs until the page has ended;
- ``<!-- tested as: --limit 4, --queries 50 -->``: these options are smaller in the tests;
- ``<!-- slow -->``: it is run with the slow tests only.

Before any other fence,

- ``<!-- output -->``: the last block that is run must print this (``...`` stands for anything);
- ``<!-- output: part -->``: this and more;
- ``<!-- file: NAME -->``: blocks below find it as this file.

``<!-- port: 8080 -->`` says that the number stands for a free port.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = ("python", "shell")
WORDS = {*RUN, "text", "toml", "yaml", "json", "html", "css", "javascript"}

_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
_SETUP = re.compile(r"setup: (\w+)\n(.*)", re.DOTALL)
_BEFORE = re.compile(r"(exit|background|tested as|slow|output|file)\b:?\s*(.*)", re.DOTALL)
_PORT = re.compile(r"<!-- port: (\d+) -->")


@dataclass(frozen=True)
class Block:
    """One fence, or one hidden piece of code.

    Attributes:
        language: the word behind the fence.
        text: what stands in it.
        line: of the page, where the text begins; from 1.
        said: what comments before it say.
        output: what it must print, if the page says so.
        part: it may print more.
    """

    language: str
    text: str
    line: int
    said: tuple[tuple[str, str], ...] = ()
    output: str | None = None
    part: bool = False

    @property
    def notes(self) -> dict[str, str]:
        """What comments before it say."""
        return dict(self.said)

    @property
    def tested(self) -> str:
        """The text, with the options that the tests make smaller."""
        text = self.text
        for option in filter(None, self.notes.get("tested as", "").split(", ")):
            name, value = option.split(" ", 1)
            text, count = re.subn(rf"(?<!\S){name} \S+", f"{name} {value}", text)
            if not count:
                raise ValueError(f"line {self.line}: nothing has the option {name}")
        return text


def blocks(page: str) -> list[Block]:
    """All fences and hidden pieces of a page, in their order."""
    found: list[Block] = []
    said: list[tuple[str, str]] = []
    for token in MarkdownIt("commonmark").parse(page):
        if token.type == "html_block":
            for comment, line in _comments(token):
                if setup := _SETUP.fullmatch(comment):
                    found.append(Block(setup[1], setup[2] + "\n", line + 1, tuple(said)))
                    said = []
                elif note := _BEFORE.fullmatch(comment):
                    said.append((note[1], note[2]))
        elif token.type in ("fence", "code_block") and token.map is not None:
            indented = token.type == "code_block"
            language = "" if indented else token.info.strip()
            block = Block(language, token.content, token.map[0] + 2 - indented, tuple(said))
            said = []
            _join(found, block)
        elif said and token.type.endswith("_open"):
            raise ValueError(f"before line {token.map[0] + 1}: <!-- {said[-1][0]} --> has no block")
    return found


def _comments(token: Token) -> Iterator[tuple[str, int]]:
    """The comments of an element, with the lines where they begin."""
    for one in _COMMENT.finditer(token.content):
        assert token.map is not None
        yield one[1], token.map[0] + 1 + token.content.count("\n", 0, one.start())


def _join(found: list[Block], block: Block) -> None:
    """Add a block, or tell the last one that is run what it must print."""
    if "output" not in block.notes:
        found.append(block)
        return
    at = next((i for i in reversed(range(len(found))) if found[i].language in RUN), None)
    if at is None or block.language in RUN:
        raise ValueError(f"line {block.line}: the output of what?")
    part = block.notes["output"] == "part"
    found[at] = replace(found[at], output=block.text, part=part)


def port(page: str) -> str | None:
    """The number that stands for a free port."""
    found = _PORT.search(page)
    return found and found[1]


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command line ``brusle ...`` in a text that is not run.

    An explanation may stand behind two spaces or ``#``, ``a|b`` in a word stands for two commands.
    """
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        found = re.match(r"\s*(?:\$ )?brusle (\S.*)", line)
        if found:
            words = shlex.split(re.split(r"\s{2,}|\s&$", found[1])[0], comments=True)
            yield from map(list, product(*(word.split("|") for word in words)))
