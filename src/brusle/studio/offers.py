"""What the page may choose from: what the user has named, and what is bundled.

The page gives numbers and no names: a name can be code.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TypeVar

from brusle import zoo
from brusle.attacks.names import ATTACKS, known_attacks
from brusle.data import Data, Source, as_source
from brusle.data.sets import remembering
from brusle.errors import InputError
from brusle.evaluation.running.victim import terms_of
from brusle.names import Name
from brusle.replies import KeepsBooks
from brusle.text import shown
from brusle.victim import Victim
from brusle.victims import as_victim
from brusle.victims.remote.kinds import KINDS as SERVICES

T = TypeVar("T")


class Offer:
    """A victim that can be chosen; it is opened when it is first wanted, and kept.

    Args:
        model: a name, a module or a victim.
        device: where it runs.

    Attributes:
        device: where it runs.
        command: the name by which a command opens it; None if it has none.
    """

    def __init__(self, model: Any, device: str) -> None:
        self._model, self.device = model, device
        self._opened: Victim | None = None
        self._turn = threading.Lock()
        self.command: str | None = model if isinstance(model, str) else None
        if self.command is not None:
            _refuse_service(self.command, Name.parse(self.command).kind in SERVICES)

    @property
    def name(self) -> str:
        """What it is called."""
        return self.command or self.open().name

    def open(self) -> Victim:
        """The victim."""
        with self._turn:
            if self._opened is None:
                found = as_victim(self._model, self.device)
                keeps_books = isinstance(found, KeepsBooks) or terms_of(found) is not None
                _refuse_service(found.name, keeps_books)
                self._opened = found
            return self._opened

    def as_dict(self) -> dict[str, Any]:
        """For the page."""
        bundled = (self.command or "").removeprefix("zoo:")
        summary = zoo.card(bundled)["summary"] if bundled in zoo.names() else ""
        return {"name": shown(self.name), "summary": summary}


class Offers:
    """Victims and data by their numbers.

    Args:
        victims: names, modules or victims of the user's, which are opened at once: what is wrong
            with one is said before there is a page.
        data: names or data of the user's.
        device: where victims run.
    """

    def __init__(self, victims: Sequence[Any], data: Sequence[Data], device: str) -> None:
        own = [Offer(victim, device) for victim in victims]
        for offer in own:
            offer.open()
        named = {offer.command for offer in own}
        bundled = [name for name in (f"zoo:{one}" for one in zoo.names()) if name not in named]
        self.victims = [*own, *(Offer(name, device) for name in bundled)]
        sample = [] if any(isinstance(one, str) and one == "sample" for one in data) else ["sample"]
        self.data: list[Data] = [*data, *sample]
        self._sources: dict[tuple[int, int], Source] = {}

    def victim(self, number: int) -> Offer:
        """The victim of this number."""
        return _of(self.victims, number, "victim")

    def source(self, data: int, victim: int) -> Source:
        """Data, framed for a victim."""
        if (data, victim) not in self._sources:
            found = as_source(_of(self.data, data, "data"), self.victim(victim).open())
            self._sources[data, victim] = remembering(found)
        return self._sources[data, victim]

    def as_dict(self) -> dict[str, Any]:
        """For the page."""
        about = known_attacks()
        return {
            "victims": [offer.as_dict() for offer in self.victims],
            "data": [shown(_title(one)) for one in self.data],
            "attacks": [{"name": name, "summary": about[name]} for name in ATTACKS],
        }


def _refuse_service(name: str, is_service: bool) -> None:
    if is_service:
        raise InputError(
            f"{name} is a service, whose images are counted and may cost money, and a page asks as "
            f"often as somebody clicks: attack it with `brusle attack`"
        )


def _of(things: Sequence[T], number: int, what: str) -> T:
    if number >= len(things):
        raise InputError(f"there is no {what} of number {number}: load the page again")
    return things[number]


def _title(data: Data) -> str:
    name: str = data if isinstance(data, str) else getattr(data, "name", "arrays")
    return name
