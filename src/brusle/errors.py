"""Errors that are meant for the user: one line that names the cause and the remedy.

Everything that brusle raises on purpose derives from `BrusleError`; the command line prints
its message without a traceback. Most are `ValueError`s as well, so that callers who do not
know brusle still catch them in the usual way.
"""

from __future__ import annotations


class BrusleError(Exception):
    """Base of all errors that brusle raises on purpose."""


class InputError(BrusleError, ValueError):
    """An argument that cannot be right: shape, range, dtype, label, option."""


class VictimError(BrusleError):
    """The victim cannot be loaded, or it answered with something that is not scores."""


class VictimUnavailable(VictimError):  # noqa: N818 - it says what an error would only name
    """The victim cannot answer now, whatever the image: it is down, busy, or short of memory.

    A victim raises it to be asked again after a while (see `brusle.trouble`); brusle raises it when
    the patience is over. Then a run ends, and what is finished is kept.

    Attributes:
        retry_after: seconds after which to ask again, if known.
        final: whoever raises it has been patient already, and the message says everything.
    """

    def __init__(
        self, message: str = "", retry_after: float | None = None, final: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after, self.final = retry_after, final


class DataError(BrusleError):
    """A data file is missing, unreadable or not what it claims to be."""


def message(error: BaseException) -> str:
    """What an error says; nothing if it cannot even be asked."""
    try:
        return str(error)
    except Exception:  # somebody's own __str__
        return ""


def first_line(error: BaseException) -> str:
    """Type and first line of an error, for messages of one line."""
    lines = message(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
