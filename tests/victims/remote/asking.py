"""What tests of services share."""

import asyncio
from typing import Any

import torch

from brusle.names import Name
from brusle.terms import Terms
from brusle.victims.remote.client import RemoteVictim
from brusle.victims.remote.kinds import KINDS


def opened(name: str) -> Any:
    """A service that was named, not connected yet."""
    parsed = Name.parse(name)
    return KINDS[parsed.kind].open(parsed, torch.device("cpu"))


def more(name: str, **options: Any) -> str:
    """A name with more options."""
    text = "&".join(f"{option}={value}" for option, value in options.items())
    return name + ("&" if "?" in name else "?") + text


def connect(name: str, terms: Terms | None = None, **options: Any) -> RemoteVictim:
    return opened(name).connect(terms, **options)


def totals(victim: RemoteVictim) -> tuple[int, int, int, int]:
    said = victim.books.totals
    return said.sent, said.answered, said.refused, said.lost


class Sleeps(list[float]):
    """Waits for no time, and remembers for how long it was asked to."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)
