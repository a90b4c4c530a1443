"""Labels by name, for victims whose set of labels nobody knows beforehand.

A service answers with a list of labels, another one for each image. Every label that was ever named
gets a column of the scores, in the order in which they were first named; so the number of columns
grows while an attack runs. Nothing that is found may depend on that order.

Labels are matched whatever their capitals and spaces, and by their aliases: names that mean the
same. A service that gives its labels stable ids may be matched by these, and the names are for
people then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from brusle.errors import InputError


class Vocabulary:
    """All labels so far; safe to use from several threads.

    Args:
        aliases: a label to others that mean the same.

    Attributes:
        aliases: likewise.
    """

    def __init__(self, aliases: Mapping[str, Iterable[str]] | None = None) -> None:
        self._lock = threading.Lock()
        self._names: list[str] = []
        self._columns: dict[str, int] = {}
        self._unclaimed: dict[str, int] = {}  # names of the data that no id has been met for
        self._meant: dict[str, str] = {}
        self.aliases = {label: tuple(others) for label, others in (aliases or {}).items()}
        for label, others in self.aliases.items():
            for other in others:
                if self._meant.setdefault(plain(other), plain(label)) != plain(label):
                    raise InputError(f"{other!r} is an alias of two labels: leave one out")

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __len__(self) -> int:
        return len(self._names)

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns are called, for people."""
        return tuple(self._names)

    def begin(self, names: Sequence[str]) -> None:
        """Let the first columns be those of ``names``, in this order, as data number them.

        Of two classes with one name the first gets what the victim says of it, since nobody can
        tell which is meant; the other is a label that is never named. Raises if another label has
        one of these columns already.
        """
        with self._lock:
            for number, name in enumerate(names):
                if number == len(self._names):
                    self._begin_column(name)
                elif self._key(self._names[number]) != self._key(name):
                    raise InputError(
                        f"label {number} is {name!r} in the data and {self._names[number]!r} for "
                        f"the victim: open the victim anew for other data, and choose another --out"
                    )

    def column(self, label: str, title: str = "") -> int:
        """The column of a label, a new one if it was never named.

        Args:
            label: what it is matched by, a name or an id.
            title: what people call it; the label itself if empty. An id that is new belongs to the
                class of the data that is called so.
        """
        key = self._key(label)
        with self._lock:
            if key not in self._columns:
                known = self._unclaimed.pop(self._key(title), None)
                self._columns[key] = len(self._names) if known is None else known
                if known is None:
                    self._names.append(title or label)
            return self._columns[key]

    def _begin_column(self, name: str) -> None:
        key, number = self._key(name), len(self._names)
        self._names.append(name)
        if key not in self._columns:
            self._columns[key] = self._unclaimed[key] = number

    def find(self, label: str) -> int | None:
        """The column of a label; None if it was never named."""
        return self._columns.get(self._key(label))

    def _key(self, label: str) -> str:
        return self._meant.get(plain(label), plain(label))


def plain(label: str) -> str:
    """A label as it is matched."""
    return " ".join(label.casefold().split())
