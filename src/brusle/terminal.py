"""Names and messages of others on a terminal: as text, whatever is in them."""

from __future__ import annotations

from brusle.lazy import same_random_numbers
from brusle.text import shown

with same_random_numbers():
    from rich import markup


def escape(text: object) -> str:
    """Text between the markup of rich, on one line."""
    return markup.escape(shown(text))
