"""A page of every command and option, made of what the commands say of themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from brusle.cli import cli


def walk(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Context]]:
    """A command and all below it, each with the words that a user types."""
    yield context.command_path, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from walk(inner, click.Context(inner, info_name=name, parent=context))


def commands() -> dict[str, click.Context]:
    """All commands by what a user types."""
    settings = cli.context_settings
    return dict(walk(cli, click.Context(cli, info_name="brusle", **settings)))


def page() -> str:
    """The page."""
    parts = ["# Commands"]
    for path, context in commands().items():
        parts.extend(_command(path, context))
    return "\n\n".join(part for part in parts if part) + "\n"


def _command(path: str, context: click.Context) -> Iterator[str]:
    yield f"## `{path}` {{ #{path.replace(' ', '-')} }}"
    yield "\n\n".join(_paragraphs(context.command.help or ""))
    usage = context.command.get_usage(context).removeprefix("Usage: ")
    yield f"```text\n{usage}\n```"
    rows = [
        f"| `{names}` | {_cell(what)} |"
        for one in context.command.get_params(context)
        if (record := one.get_help_record(context)) is not None
        for names, what in [record]
        if what  # an argument, which the line above names
    ]
    if rows:
        yield "\n".join(["| option | what it does |", "|---|---|", *rows])


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs; click keeps the lines of one that begins with a backspace character."""
    for block in inspect.cleandoc(text).split("\n\n"):
        first, _, rest = block.partition("\n")
        if first.strip() == "\b":
            yield f"```text\n{rest}\n```"
        else:
            yield block.replace("<", "&lt;")


def _cell(text: str) -> str:
    """Text in a table: outside of code, nothing of it is taken for Markdown."""
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        for letter in "\\*_[]<|":
            parts[place] = parts[place].replace(letter, f"\\{letter}")
    return "`".join(part.replace("|", "\\|") if i % 2 else part for i, part in enumerate(parts))
