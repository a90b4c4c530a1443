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


class DataError(BrusleError):
    """A data file is missing, unreadable or not what it claims to be."""
