"""From the name of a service to the victim: may it be tested, and what does it say of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import torch

from brusle.terms import Terms
from brusle.victims.remote import loops
from brusle.victims.remote.authorisation import require_authorised
from brusle.victims.remote.client import RemoteVictim, hang_up
from brusle.victims.remote.errands import Sleep
from brusle.victims.remote.service import Failure, Response, Service
from brusle.victims.remote.transport import Transport
from brusle.victims.remote.tries import unavailable

_TRIES = 3
_NO_PAGE = (404, 405, 501)


def _as_given(terms: Terms) -> Terms:
    return terms


@dataclass(frozen=True)
class Unconnected:
    """A service that was named, of which nothing was asked yet.

    Attributes:
        name: of the victim.
        service: the format.
        device: where answers are wanted.
        hints: terms that are usual for the service, for what the user does not say.
    """

    name: str
    service: Service
    device: torch.device
    hints: Callable[[Terms], Terms] = _as_given

    @property
    def fingerprint(self) -> str:
        """That of the victim."""
        return self.service.fingerprint

    def connect(self, terms: Terms | None = None, sleep: Sleep = asyncio.sleep) -> RemoteVictim:
        """The victim, on these terms; the service is asked what it is, which costs nothing."""
        terms = self.hints(terms or Terms())
        self.service.unlock()
        require_authorised(self.service.address, terms)
        transport = Transport(self.service.address)
        loop = loops.shared()

        def get(url: str) -> Response | None:
            page = _page(transport, url, self.service.headers, terms.timeout, sleep)
            return asyncio.run_coroutine_threadsafe(page, loop).result()

        try:
            self.service.prepare(get)
        except Failure as failure:
            raise unavailable(self.name, failure) from None
        finally:
            hang_up(loop, transport)
        return RemoteVictim(self.name, self.service, terms, device=self.device, sleep=sleep)


async def _page(
    transport: Transport, url: str, headers: dict[str, str], seconds: float, sleep: Sleep
) -> Response | None:
    """A page of a service; None if it has none there."""
    for wait in range(_TRIES):
        try:
            response = await transport.get(url, headers, seconds)
            return None if response.status in _NO_PAGE else response
        except Failure as error:
            failure = error
        if failure.fault != "busy":
            break
        await sleep(0.2 * 2**wait)
    raise failure
