"""What happens to a call, whatever its format: read, admitted, answered by the victim, booked."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from torch import Tensor

from brusle.errors import VictimError, first_line
from brusle.serving.books import Books, Call, Outcome, hash_of
from brusle.serving.faults import Fate, Faults, Gate
from brusle.serving.formats import Format
from brusle.serving.formats.base import Question, Reader, Refusal, Sent
from brusle.serving.hosting import whole_body
from brusle.trouble import find_trouble

T = TypeVar("T")
BOOKS = "/-/books"
LARGEST = 64 * 2**20  # bytes of a body
_FAILURES = {429: "too many requests", 500: "internal error", 503: "the service is unavailable"}

HangUp = Callable[[Scope], None]


@dataclass(eq=False)
class Service:
    """An ASGI application.

    Attributes:
        format: how requests and answers look.
        books: where calls are written down.
        faults: what goes wrong on purpose.
        hang_up: closes the connection that a request came by.
        key: what a request must carry; None asks for no key.
    """

    format: Format
    books: Books
    faults: Faults
    hang_up: HangUp
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._gate = Gate(self.faults.rate)
        # one thread: a victim is asked by one call at a time, with as many threads as it has here
        threads = torch.get_num_threads()
        self._worker = ThreadPoolExecutor(1, "brusle-serve", torch.set_num_threads, (threads,))
        self._app: ASGIApp = Starlette(
            routes=[Route(BOOKS, self._show_books), *self.format.routes(self._infer)],
            exception_handlers={HTTPException: self._refused, Refusal: self._refused},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, if it carries the key."""
        app = self._app
        if not self._may_enter(Request(scope)):
            app = self.format.error(Refusal(self.format.no_key, "the key is missing or wrong"))
        await app(scope, receive, send)

    def end(self) -> None:
        """No more calls."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        self.books.end()

    def _may_enter(self, request: Request) -> bool:
        if self.key is None or request.url.path in (BOOKS, *self.format.keyless):
            return True
        key = self.key.encode()
        carried = self.format.keys(request)
        return any(hmac.compare_digest(key, one.encode()) for one in carried)

    async def _show_books(self, request: Request) -> Response:
        return JSONResponse(self.books.as_dict())

    async def _refused(self, request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):  # no such address, or another method
            error = Refusal(error.status_code, error.detail)
        assert isinstance(error, Refusal)
        return self.format.error(error)

    def _infer(self, read: Reader) -> Callable[[Request], object]:
        return partial(self._answer, read)

    async def _answer(self, read: Reader, request: Request) -> Response:
        """The answer to one call; it is in the books before it leaves."""
        came = time.monotonic()
        try:
            body = await whole_body(request, LARGEST)
        except ClientDisconnect:  # what has not come whole was not received
            return Response()
        call = self.books.open(came)
        fate = self.faults.fate(call.number)
        try:
            response = await self._try(read, request, body, call, fate)
        except Refusal as refusal:
            call.images = call.images or refusal.images
            await _until(came + fate.latency)
            outcome: Outcome = "throttled" if refusal.kind == "pace" else "failed"
            self.books.close(call, outcome, refusal.status)
            return self.format.error(refusal)
        await _until(came + fate.latency)
        if fate.drop:
            self.books.close(call, "dropped")
            return _Nothing(self.hang_up)
        self.books.close(call, "answered", response.status_code)
        return response

    async def _try(
        self, read: Reader, request: Request, body: bytes | None, call: Call, fate: Fate
    ) -> Response:
        if body is None:
            raise Refusal(413, f"the body is above {LARGEST} bytes")
        question = await self._work(read, Sent(body, request.headers, request.path_params))
        call.images, call.refused = len(question.images) + question.refused, question.refused
        self._admit(call.images)
        if not fate.late:
            _fail(fate)
        if fate.drop and not fate.late:
            return Response()
        call.hashes, response = await self._work(self._ask, question, call.number)
        _fail(fate)
        return response

    def _admit(self, images: int) -> None:
        wait = self._gate.wait(images)
        if wait > 0:
            seconds = math.ceil(wait)
            raise Refusal(429, f"too many images: wait {seconds} s", kind="pace", wait=seconds)

    def _ask(self, question: Question, number: int) -> tuple[list[str], Response]:
        """In the worker's thread: hashes of the images, and the answer."""
        keys = [self.faults.key(number, image) for image in range(len(question.images))]
        scores: Tensor = torch.zeros(0, 2)
        try:
            if question.images:
                scores = self.format.model.ask(question.images, keys)
        except Exception as error:  # whatever somebody's model raises
            status = 500 if find_trouble(error) is None else 503
            reason = str(error) if isinstance(error, VictimError) else first_line(error)
            raise Refusal(status, f"the model failed: {reason}") from error
        return [hash_of(image) for image in question.images], question.write(scores)

    async def _work(self, function: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, function, *arguments)


class _Nothing(Response):
    """No answer: the connection is closed."""

    def __init__(self, hang_up: HangUp) -> None:
        super().__init__()
        self._hang_up = hang_up

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._hang_up(scope)
        while (await receive())["type"] != "http.disconnect":  # or the server sends an error
            pass


def _fail(fate: Fate) -> None:
    if fate.status is not None:
        raise Refusal(fate.status, _FAILURES[fate.status], wait=fate.retry_after)


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
