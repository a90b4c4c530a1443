"""Where benchmarks put their numbers for the documentation: ``--figures FILE``."""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import torch

import brusle
from brusle.evaluation.running.revision import git_revision

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from figures import Figures, line, markdown  # noqa: E402

__all__ = ["add_option", "line", "markdown", "put", "read_table", "write"]
Table = list[list[str]]


def add_option(parser: argparse.ArgumentParser) -> None:
    """Let a benchmark be asked for the file."""
    help_ = "also write the numbers here, as docs/figures has them; tools/figures.py shows them"
    parser.add_argument("--figures", type=Path, help=help_)


def write(
    path: Path | None,
    tables: dict[str, Table] | None = None,
    values: dict[str, str] | None = None,
    keep: bool = False,
) -> None:
    """Write what was measured, if a file was asked for.

    Args:
        path: the file.
        tables: by name; the first row is the head.
        values: single numbers.
        keep: what the file has of an earlier call, and this one has not, stays.
    """
    if path is None:
        return
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    new = Figures(command, _today(), tables or {}, values or {})
    if keep and path.exists():
        old = Figures.read(path)
        new = replace(new, tables=old.tables | new.tables, values=old.values | new.values)
    new.write(path)


def _today() -> str:
    """When, and with what."""
    revision = git_revision(ROOT)
    at = f" at {revision}" if revision else ""
    return (
        f"{date.today()}, brusle {brusle.__version__}{at}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {torch.get_num_threads()} threads"
    )


def read_table(path: Path | None, name: str) -> Table:
    """A table that an earlier call has written, to be added to."""
    return Figures.read(path).tables.get(name, []) if path is not None and path.exists() else []


def put(table: Table, row: Sequence[str], column: str, cell: str) -> None:
    """Write one cell of a table, in a row that begins so; row and column are added if need be."""
    if not table:
        table.append([""] * len(row))
    head = table[0]
    if column not in head:
        head.append(column)
        for cells in table[1:]:
            cells.append("")
    found = next((cells for cells in table[1:] if cells[: len(row)] == list(row)), None)
    if found is None:
        found = [*row, *[""] * (len(head) - len(row))]
        table.append(found)
    found[head.index(column)] = cell
