"""A server in a thread of its own, on a free port of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brusle.defaults import FORMATS
from brusle.errors import InputError
from brusle.packages import need
from brusle.serving.books import Books
from brusle.serving.faults import Faults, Latency
from brusle.serving.hosting import Host
from brusle.serving.model import Model
from brusle.terms import Pace
from brusle.victims import as_victim

_PACKAGES = ("starlette", "uvicorn", "python_multipart")


class Server:
    """A victim behind HTTP; runs as long as the ``with`` block.

        with Server(victim, "oip", fail=0.3, seed=1) as server:
            server.url, server.name, server.books.as_dict()

    Args:
        victim: a victim, or what becomes one (a name, a module).
        format: one of `brusle.defaults.FORMATS`.
        host: the address to listen on.
        port: the port; 0 takes a free one.
        top: most labels of a list.
        most: most images of one call; None is what is usual for the format.
        latency: ``50ms``, or ``lognormal:50ms,500ms`` (median and 99th percentile).
        rate: most images in a time, as in ``600/min``.
        fail: share of calls that answer 429, 500 or 503.
        drop: share of calls whose connection is closed without an answer.
        seed: of what goes wrong, and of the noise of a randomised victim.
        key: what requests must carry; None asks for no key.
        books: file that gets a line for each call.

    Attributes:
        books: what was received and what became of it.
    """

    def __init__(
        self,
        victim: Any,
        format: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        top: int = 10,
        most: int | None = None,
        latency: str | None = None,
        rate: str | None = None,
        fail: float = 0.0,
        drop: float = 0.0,
        seed: int = 0,
        key: str | None = None,
        books: str | Path | None = None,
    ) -> None:
        for package in _PACKAGES:
            need(package, "a server")
        if format not in FORMATS:
            raise InputError(f"format {format!r} is none: choose one of {', '.join(FORMATS)}")
        if key == "" or top < 1 or (most is not None and most < 1):
            raise InputError("top and most are at least 1, and a key is not empty")
        from brusle.serving.formats import KINDS
        from brusle.serving.service import Service

        faults = Faults(
            None if latency is None else Latency.parse(latency),
            None if rate is None else Pace.parse(rate),
            fail,
            drop,
            seed,
        )
        self._format = KINDS[format](Model(as_victim(victim), top), most)
        self._host = Host(host, port)
        self.books = Books(None if books is None else Path(books))
        self._service = Service(self._format, self.books, faults, self._host.hang_up, key)

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._host.url

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._host.port

    @property
    def name(self) -> str:
        """The name of the victim that asks this server."""
        return self._format.victim(self.url)

    def __enter__(self) -> Server:
        self._host.start(self._service)
        return self

    def __exit__(self, *_: object) -> None:
        self._host.end()
        self._service.end()


in_background = Server  # as it reads in a ``with`` statement
