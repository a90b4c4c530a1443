"""Names and messages of others as text: nothing in them commands whoever shows them."""

from __future__ import annotations

import re

# control characters, half characters, line ends of Unicode, marks that turn the direction of text
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_HALVES = re.compile("[\ud800-\udfff]")
_LONG = 80


def shown(text: object) -> str:
    r"""``text`` on one line, what cannot be seen as ``\x1b``: for terminals, pages and cells."""
    return _UNSEEN.sub(_escaped, str(text))


def storable(text: str) -> str:
    """``text`` as it is, but for halves of characters, which UTF-8 cannot hold."""
    return _HALVES.sub(_escaped, text)


def shortened(text: str, most: int = _LONG) -> str:
    """The beginning of a long text."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def brief(value: object) -> str:
    """A value that was given, for an error of one short line."""
    return shortened(repr(value))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
