"""A table of strings, for terminal and Markdown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """A table of strings; rows that begin alike belong together.

    Attributes:
        headers: of the columns.
        rows: the strings.
        worded: so many columns have words, the others have numbers.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    worded: int = 0
