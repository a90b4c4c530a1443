"""An ASGI application on this machine, in a thread of its own."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

from brusle.errors import InputError, VictimError

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.types import ASGIApp, Scope

_PATIENCE = 10.0  # seconds to start and to end


class Host:
    """Listens from the beginning, so that its port is known; answers from `start` on.

    Args:
        host: the address to listen on.
        port: the port; 0 takes a free one.
    """

    def __init__(self, host: str, port: int) -> None:
        self._socket = _listening(host, port)
        self._host, self.port = host, int(self._socket.getsockname()[1])
        self._running: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def start(self, app: ASGIApp) -> None:
        """Answer requests with ``app``."""
        import uvicorn

        config = uvicorn.Config(
            app,
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

    def end(self) -> None:
        """No more answers."""
        if self._running is not None and self._thread is not None:
            self._running.should_exit = True
            self._thread.join(_PATIENCE)
        self._socket.close()

    def hang_up(self, scope: Scope) -> None:
        """Close the connection that a request came by."""
        assert self._running is not None
        for connection in [*self._running.server_state.connections]:
            if getattr(connection, "client", None) == scope["client"]:
                connection.transport.close()


async def whole_body(request: Request, most: int) -> bytes | None:
    """The body of a request; None if it has more than ``most`` bytes."""
    said = request.headers.get("content-length", "0")
    if said.isdecimal() and int(said) > most:
        return None
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > most:
            return None
    return b"".join(parts)


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
