"""Requests over HTTP, with hard limits on what comes back; see `Transport`."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urljoin

import httpx

from brusle.errors import first_line
from brusle.version import __version__
from brusle.victims.remote.authorisation import is_loopback, origin
from brusle.victims.remote.masking import Masking, line
from brusle.victims.remote.service import Call, Failure, Response

MOST_BYTES = 32 * 2**20
_IDLE = 1.5  # seconds that a connection is kept: servers close theirs after 2 to 75
_LEAVES = "http11.send_request_headers.started"
_HOPS = 3
_NOTHING_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
)
Leaving = Callable[[], Awaitable[None]]
for _logger in ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy"):
    logging.getLogger(_logger).addFilter(Masking())


class Transport:
    """A pool of connections to one service; to be used on one event loop.

    Nothing is sent a second time, no redirect is followed and no cookie kept; certificates are
    verified. A response is given up when it is larger than `MOST_BYTES`, decoded, or when it is not
    whole in time. Proxies of the environment are used, but not for this machine.

    Every call that is under way has a client of its own, which is used again afterwards: a client
    with many connections looks at all of them before each request.

    Args:
        url: of the service.
    """

    def __init__(self, url: str) -> None:
        self._trusts_environment = not is_loopback(url)
        self._certificates = httpx.create_ssl_context()
        self._idle: list[httpx.AsyncClient] = []
        self._closed = False

    async def close(self) -> None:
        """Close all connections; those of calls under way when they end."""
        self._closed = True
        while self._idle:
            await self._idle.pop().aclose()

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client that nobody else uses."""
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            yield client
        finally:
            if self._closed:
                await client.aclose()
            else:
                self._idle.append(client)

    def _new_client(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(
            verify=self._certificates,
            timeout=None,  # each call has one time limit for the whole of it
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_IDLE),
            follow_redirects=False,
            trust_env=self._trusts_environment,
            headers={"User-Agent": f"brusle/{__version__}", "Accept-Encoding": "gzip"},
        )
        client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        return client

    async def send(self, call: Call, seconds: float, leaving: Leaving) -> Response:
        """Send a request, once.

        Args:
            call: the request.
            seconds: most that it may take, from the connection to the last byte.
            leaving: awaited just before the first byte of the request leaves; not at all if no
                connection could be had.
        """
        left = _Once(leaving)
        try:
            async with asyncio.timeout(seconds):
                response = await self._exchange(call, left)
        except TimeoutError:
            failure = Failure("busy", f"no answer within {seconds:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            if not isinstance(error, _NOTHING_SENT):
                await left()
            failure = _failure(error)
        else:
            await left()
            return response
        raise failure  # not in the handler: the exception there knows headers and URL

    async def get(self, url: str, headers: dict[str, str], seconds: float) -> Response:
        """A page of the same service, for which it charges nothing; redirects stay with it."""
        response = Response(0)
        for _ in range(_HOPS):
            response = await self.send(Call("GET", url, headers), seconds, _nothing)
            target = urljoin(url, response.headers.get("location", url))
            if not 300 <= response.status < 400 or origin(target) != origin(url):
                break
            url = target
        refuse_redirect(response, url)
        return response

    async def _exchange(self, call: Call, left: _Once) -> Response:
        async with self._client() as client:
            request = client.build_request(
                call.method,
                call.url,
                headers=dict(call.headers),
                content=call.content,
                extensions={"trace": left.trace},
            )
            response = await client.send(request, stream=True)
            try:
                headers = {key.lower(): value for key, value in response.headers.items()}
                encoding = headers.get("content-encoding", "")
                content = await self._read(response.aiter_raw(), encoding)
            finally:
                await response.aclose()
        return Response(response.status_code, headers, content)

    async def _read(self, chunks: AsyncIterator[bytes], encoding: str) -> bytes:
        """The whole body, decoded, if it is not too long."""
        decode = _decoder(encoding)
        body = bytearray()
        async for chunk in chunks:
            body += decode(chunk, MOST_BYTES + 1 - len(body))
            if len(body) > MOST_BYTES:
                limit = MOST_BYTES / 2**20
                raise Failure("nonsense", f"its answer is longer than {limit:g} MB")
        return bytes(body)


class _Once:
    """Says that a request leaves, once; also as httpcore's trace of what it does."""

    def __init__(self, leaving: Leaving) -> None:
        self._leaving: Leaving | None = leaving

    async def __call__(self) -> None:
        if self._leaving is not None:
            leaving, self._leaving = self._leaving, None
            await leaving()

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        # a request to open a tunnel is the proxy's, and holds no image
        if event == _LEAVES and info["request"].method != b"CONNECT":
            await self()


async def _nothing() -> None:
    """Nobody wants to know that a request leaves."""


def refuse_redirect(response: Response, url: str) -> None:
    """Raise if the answer is that another address should be asked."""
    if not 300 <= response.status < 400 or "location" not in response.headers:
        return
    target = urljoin(url, response.headers["location"])
    raise Failure(
        "refused",
        f"it redirects to {line(origin(target), 80)}, and images are not sent on",
        status=response.status,
    )


def _decoder(encoding: str) -> Callable[[bytes, int], bytes]:
    """Decodes a piece of a body, of which at most so many bytes are wanted."""
    if encoding.lower() in ("", "identity"):
        return lambda piece, most: piece[:most]
    if encoding.lower() not in ("gzip", "x-gzip"):
        raise Failure("nonsense", f"its answer is encoded as {line(encoding, 20)}, not as asked")
    inflater = zlib.decompressobj(wbits=31)

    def inflate(piece: bytes, most: int) -> bytes:
        try:
            return inflater.decompress(piece, most)
        except zlib.error:
            pass
        raise Failure("nonsense", "its answer is no gzip, though it says so")

    return inflate


def _failure(error: Exception) -> Failure:
    """What a client's error means."""
    said = line(first_line(error), 120)
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return Failure("refused", "its certificate cannot be verified")
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        return Failure("refused", "its address is none")
    return Failure("busy", said)
