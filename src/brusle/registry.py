"""What can be named: brusle's own kinds of victims, data, defences and attacks, and plugins' kinds.

A package adds a kind with an entry point in the group ``brusle.victims``, ``brusle.data``,
``brusle.defences`` or ``brusle.attacks``. It is imported when the user asks for that kind, and not
before; it cannot take the place of a kind that brusle has itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from brusle.errors import InputError
from brusle.names import Name, hint

Open = TypeVar("Open", bound=Callable[..., Any])


@dataclass(frozen=True)
class Kind(Generic[Open]):
    """What may stand before the colon of a name.

    Attributes:
        open: makes what a `Name` of this kind asks for.
        form: how such a name is written.
        summary: a line about it.
        risk: what opening a name of this kind does beyond reading data and computing, for a
            message; empty if nothing. Then brusle opens such a name also if a file says it, and
            not the user.
        whole: nothing need stand behind the colon.
    """

    open: Open
    form: str
    summary: str
    risk: str
    whole: bool = False


class Registry(Generic[Open]):
    """All kinds of one thing.

    Args:
        what: the thing, for messages.
        group: of the entry points, behind ``brusle.``.
        kinds: brusle's own.
        open_plugin: opens a name of a kind that a plugin has: like `Kind.open`, with the entry
            point in front.
    """

    def __init__(
        self,
        what: str,
        group: str,
        kinds: Mapping[str, Kind[Open]],
        open_plugin: Callable[..., Any],
    ) -> None:
        self.kinds = kinds
        self._what, self._group, self._open_plugin = what, group, open_plugin

    def all_kinds(self) -> dict[str, Kind[Open]]:
        """Brusle's own kinds, then those of installed plugins."""
        points = entry_points(group=f"brusle.{self._group}")
        others = {p.name: self._of_plugin(p) for p in points if p.name not in self.kinds}
        return dict(self.kinds) | others

    def find(self, name: Name) -> Kind[Open]:
        """The kind of ``name``."""
        if name.kind in self.kinds:
            return self.kinds[name.kind]
        kinds = self.all_kinds()
        if name.kind not in kinds:
            raise InputError(f"unknown {self._what} {name.text!r}{hint(name.kind, kinds)}")
        return kinds[name.kind]

    def risk(self, text: str) -> str:
        """What opening the name ``text`` does beyond reading data; empty if nothing, or unknown."""
        kind = self.all_kinds().get(Name.parse(text).kind)
        return kind.risk if kind else ""

    def summaries(self) -> dict[str, str]:
        """How names of each kind are written, with a line about it."""
        return {kind.form: kind.summary for kind in self.all_kinds().values()}

    def _of_plugin(self, point: EntryPoint) -> Kind[Open]:
        opener: Any = partial(self._open_plugin, point)
        risk = f"runs the installed plugin {point.value}"
        return Kind(opener, point.name, f"From {point.value}", risk)
