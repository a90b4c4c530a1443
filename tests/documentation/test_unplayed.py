"""Blocks that are not run: what commands they name can be given, and what they hold can be read."""

import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress

import click
import pytest
import yaml
from blocks import PAGES, ROOT, RUN, WORDS, Block, blocks, commands
from markdown_it import MarkdownIt
from markdown_it.token import Token

from brusle.cli import cli

BLOCKS = {str(page.relative_to(ROOT)): blocks(page.read_text(encoding="utf-8")) for page in PAGES}


def unplayed(language: str) -> Iterator[tuple[str, Block]]:
    """Blocks of this language, and where they stand."""
    for page, found in BLOCKS.items():
        yield from (
            (f"{page}:{block.line}", block) for block in found if block.language == language
        )


COMMANDS = [
    pytest.param(words, id=f"{place} {' '.join(words)}")
    for place, block in unplayed("text")
    for words in commands(block.text)
]


def spans(tokens: list[Token]) -> Iterator[str]:
    """What stands between single backticks."""
    for token in tokens:
        if token.type == "code_inline":
            yield token.content
        yield from spans(token.children or [])


IN_SENTENCES = [
    pytest.param(words, id=f"{page.name} {' '.join(words)}")
    for page in PAGES
    for span in spans(MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")))
    for words in commands(span)
]


@pytest.mark.parametrize("page", BLOCKS)
def test_every_block_says_what_it_is(page) -> None:
    """`shell` and `python` are run; an indented block is nothing, because nobody runs it."""
    for block in BLOCKS[page]:
        assert block.language in WORDS, f"{page}, line {block.line}: {block.language or 'no word'}"


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_that_are_not_run_can_be_given(words) -> None:
    assert parsed(words)


def programs(text: str) -> list[str]:
    """Command lines of this repository's own programs, and of its Makefile."""
    return re.findall(r"\b(?:make [a-z-]+|python \w+/\w+\.py(?: [^`#\n]*)?)", text)


PROGRAMS = sorted(
    {
        one.strip()
        for page in PAGES
        for code in (
            *(block.text for block in blocks(page.read_text(encoding="utf-8"))),
            *spans(MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))),
        )
        for one in programs(re.sub(r"\\\n\s*", "", code))
    }
)


@pytest.mark.parametrize("command", PROGRAMS)
def test_other_programs_have_the_options_that_pages_name(command) -> None:
    program, name, *words = command.split()
    if program == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{name}:", makefile, re.MULTILINE)
        return
    source = (ROOT / name).read_text(encoding="utf-8")
    known = re.findall(r'"(--[\w-]+)"', source)
    assert [word for word in words if word.startswith("--") and word not in known] == []


@pytest.mark.parametrize("words", IN_SENTENCES)
def test_commands_in_sentences_exist(words) -> None:
    """They may leave out arguments, and the value of an option, where these are not the point."""
    with suppress(click.MissingParameter, click.BadOptionUsage):
        assert parsed(words)


def parsed(words: list[str]) -> bool:
    """Whether there are such a command, options and values; complains if not."""
    command, context = cli, click.Context(cli)
    while isinstance(command, click.Group):
        name, *words = words
        if any(name in option.opts for option in command.params):
            return True  # of all commands, as --version
        found = command.get_command(context, name)
        assert found is not None, name
        command = found
    if words != ["..."]:
        command.make_context(command.name, words)
    return True


@pytest.mark.parametrize(
    "wrong",
    [
        "evaluat",
        "--versio",
        "evaluate --pixel",
        "evaluate --goal sideways",
        "data fetch cifar11",
        "evaluate x",
    ],
)
def test_commands_that_do_not_exist_are_found(wrong) -> None:
    with pytest.raises((AssertionError, click.ClickException)):
        parsed(wrong.split())


@pytest.mark.parametrize("language", ["toml", "yaml", "json"])
def test_files_on_pages_can_be_read(language) -> None:
    read = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": yaml.safe_load}[language]
    for place, block in unplayed(language):
        assert read(block.text), place


def test_extras_that_are_installed_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"brusle\[([\w,-]+)\]", "".join(p.read_text("utf-8") for p in PAGES))
    assert len(named) > 10
    assert {extra for one in named for extra in one.split(",")} <= set(
        project["optional-dependencies"]
    )


def test_most_blocks_that_could_be_run_are_run() -> None:
    found = [block for page in BLOCKS.values() for block in page]
    run = [block for block in found if block.language in RUN]
    assert len(run) > len([block for block in found if block.language == "text"])
