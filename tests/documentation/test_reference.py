"""The reference: every public name and command, and nothing private."""

import re
from types import ModuleType

import click
from handbook import commands
from handbook.docstrings import markdown
from handbook.reference import FOR_AUTHORS, Reference, signature

import brusle
from brusle.cli import cli

PAGES = Reference().pages()
ANCHORS = set(re.findall(r"\{ #(\S+) \}", "\n".join(PAGES.values())))


def test_every_public_name_has_its_place() -> None:
    for name in set(brusle.__all__) - {"__version__"}:
        thing = getattr(brusle, name)
        if not isinstance(thing, ModuleType):
            assert f"brusle.{name}" in ANCHORS
            continue
        assert f"{name}.md" in PAGES
        for inner in getattr(thing, "__all__", ()):
            inside = getattr(thing, inner)
            assert isinstance(inside, ModuleType) or f"brusle.{name}.{inner}" in ANCHORS


def test_nothing_private_is_there() -> None:
    parts = {part for anchor in ANCHORS for part in anchor.split(".")}
    assert not [part for part in parts if part.startswith("_")]
    for name in FOR_AUTHORS:
        assert f"{name.rpartition('.')[2]}.md" in PAGES


def test_no_name_is_described_twice() -> None:
    text = "\n".join(PAGES.values())
    anchors = re.findall(r"\{ #(\S+) \}", text)
    assert len(anchors) == len(set(anchors))
    assert "The same as [`brusle.evaluate`](brusle.md#brusle.evaluate)." in PAGES["evaluation.md"]


def every(command: click.Command, path: str):
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from every(inner, f"{path} {name}")


def test_every_command_and_option_has_its_place() -> None:
    page = commands.page()
    for name in cli.list_commands(None):
        for path, command in every(cli.get_command(None, name), f"brusle {name}"):
            section = page.partition(f"## `{path}` {{")[2].partition("\n## ")[0]
            assert section, path
            for one in command.params:
                if isinstance(one, click.Option) and not one.hidden:
                    assert one.opts[-1] in section, (path, one.opts)


def test_docstrings_become_markdown() -> None:
    text = """Do it.

    More, with ``code`` and a <b>.

        example()

    Args:
        first: what it
            is.
        *more: others.

    Returns:
        A number.
    """
    assert markdown(text) == (
        "Do it.\n\nMore, with `code` and a &lt;b>.\n\n```python\nexample()\n```\n\n"
        "**Arguments**\n\n- `first`: what it is.\n- `*more`: others.\n\n**Returns**\n\nA number."
    )


def test_signatures_are_as_written() -> None:
    def function(a: int, *rest: str, b: "float" = 2.0) -> None: ...

    def keyword(a, *, b=None): ...

    assert signature("f", function) == "f(a: int, *rest: str, b: float = 2.0) -> None"
    assert signature("f", keyword) == "f(a, *, b=None)"
