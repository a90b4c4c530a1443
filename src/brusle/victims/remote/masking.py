"""Keys and tokens: known here as soon as they are read, so that no message shows them."""

from __future__ import annotations

import logging
import os
import re
from urllib.parse import quote, quote_plus

from brusle.errors import InputError
from brusle.text import shortened, shown

_MASK = "***"
_LEAST = 4  # characters: what is shorter stands in every other word
_QUERY = re.compile(r"(\b\w+://[^\s?'\"<>]*)\?[^\s'\"<>]*")
_TELLING = re.compile(r"auth|key|token|secret|passw|cookie|session|credential|signature", re.I)
_kept: set[str] = set()


def keep_secret(value: str) -> str:
    """Mask ``value`` from now on, also as it stands in a URL; returns it."""
    for form in {value, quote(value, safe=""), quote_plus(value)}:
        if len(form) >= _LEAST:
            _kept.add(form)
    return value


def masked(text: str) -> str:
    """``text`` without keys, and without the queries of URLs, which may hold some."""
    return without_keys(_QUERY.sub(r"\1", text))


def without_keys(text: str) -> str:
    """``text`` without keys, and else as it is."""
    for value in sorted(_kept, key=len, reverse=True):
        text = text.replace(value, _MASK)
    return text


def line(text: str, most: int = 200) -> str:
    """What others say as a part of one line: masked, short, and harmless to a terminal."""
    return shown(shortened(masked(" ".join(text.split())), most))


class Masking(logging.Filter):
    """Masks what a logger says: httpx names the address of every request, and answers may quote."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log it, which it always is."""
        record.msg, record.args = masked(record.getMessage()), ()
        return True


def is_telling(header: str) -> bool:
    """Whether a header of this name is likely to hold a key."""
    return _TELLING.search(header) is not None


def from_environment(variable: str, wanted_by: str) -> str:
    """The value of a variable, which is a secret; raise if there is none.

    Args:
        variable: its name.
        wanted_by: what needs it, for the message.
    """
    value = os.environ.get(variable, "")
    if not value:
        raise InputError(f"{wanted_by} needs the environment variable {variable}: set it")
    if not value.isprintable():
        raise InputError(f"the environment variable {variable} has characters that no key has")
    return keep_secret(value)
