"""A server in a thread of its own, on a free port of this machine."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brusle.defaults import FORMATS
from brusle.errors import InputError, VictimError
from brusle.serving.books import Books
from brusle.serving.faults import Faults, Latency
from brusle.serving.model import Model
from brusle.terms import Pace
from brusle.victims import as_victim
from brusle.victims.options import need

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import Scope

_PACKAGES = ("starlette", "uvicorn", "python_multipart")
_PATIENCE = 10.0  # seconds to start and to end


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
        self._socket = _listening(host, port)
        self._host, self.port = host, int(self._socket.getsockname()[1])
        self.books = Books(None if books is None else Path(books))
        self._service = Service(self._format, self.books, faults, self._hang_up, key)
        self._running: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    @property
    def name(self) -> str:
        """The name of the victim that asks this server."""
        return self._format.victim(self.url)

    def __enter__(self) -> Server:
        import uvicorn

        config = uvicorn.Config(
            self._service,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,  # an address may hold a key
            timeout_keep_alive=3600,  # or a call meets a closing connection, and is in no books
            timeout_graceful_shutdown=2,
        )
        self._running = uvicorn.Server(config)
        sockets = {"sockets": [self._socket]}
        self._thread = threading.Thread(target=self._running.run, kwargs=sockets, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _PATIENCE
        while not self._running.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise VictimError(f"the server on port {self.port} did not start")
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None and self._thread is not None:
            self._running.should_exit = True
            self._thread.join(_PATIENCE)
        self._service.end()

    def _hang_up(self, scope: Scope) -> None:
        assert self._running is not None
        for connection in [*self._running.server_state.connections]:
            if getattr(connection, "client", None) == scope["client"]:
                connection.transport.close()


in_background = Server  # as it reads in a ``with`` statement


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on port {port} of {host} ({reason}): choose another port, or 0 for any"
        ) from error
    # or an answer, which is written in two parts, waits for the client's delayed acknowledgement
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
