"""What the studio answers: files of the page, and questions of the page as JSON."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from brusle import report
from brusle.errors import BrusleError, InputError, VictimError, first_line
from brusle.report.scripts import TRACE_VIEW
from brusle.studio.asked import (
    Attempt,
    Change,
    DataImage,
    FileImage,
    Folder,
    read_json,
    read_query,
)
from brusle.studio.folders import Folders
from brusle.studio.lanes import Busy, Lanes
from brusle.studio.live import LiveAttack
from brusle.studio.offers import Offers
from brusle.studio.pictures import Pictures
from brusle.text import shortened, shown
from brusle.victim import traits

_FRAME = 0.04  # seconds between two messages to the page
_BEAT = 1.0  # and between signs of life
_LONG = 1000  # letters of a message
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_OWN, _SHARED = Path(__file__).parent, Path(report.__file__).parent
SCRIPTS = ("asking.js", "images.js", "lane.js", "runs.js", "studio.js")
_FILES = {
    "": _OWN / "index.html",
    **{name: _SHARED / name for name in ("page.css", *TRACE_VIEW)},
    **{name: _OWN / name for name in ("studio.css", *SCRIPTS)},
}

Handler = Callable[[Request], Awaitable[Response]]


class Answers:
    """All that can be asked.

    Args:
        offers: what can be chosen from.
        folders: the run folders.
    """

    def __init__(self, offers: Offers, folders: Folders) -> None:
        self._offers, self._folders = offers, folders
        self._pictures, self._lanes = Pictures(offers), Lanes()

    def app(self) -> Starlette:
        """An ASGI application."""
        asked: dict[str, tuple[str, Handler]] = {
            "/api/offers": ("GET", self._show_offers),
            "/api/victims/{number:int}": ("GET", self._show_victim),
            "/api/data/{number:int}": ("GET", self._show_data),
            "/api/images/data": ("POST", self._choose_data),
            "/api/images/file": ("POST", self._choose_file),
            "/api/attacks": ("POST", self._attack),
            "/api/attacks/{number:int}": ("POST", self._change),
            "/api/runs": ("GET", self._show_runs),
            "/api/runs/open": ("POST", self._open_run),
            "/api/runs/{number:int}": ("GET", self._show_run),
            "/api/runs/{number:int}/rows": ("GET", self._show_rows),
            "/api/runs/{number:int}/rows/{problem}": ("GET", self._show_row),
        }
        routes = [Route(path, _explained(do), methods=[how]) for path, (how, do) in asked.items()]
        files = [Route(f"/{name}", _file(path)) for name, path in _FILES.items()]
        return Starlette(routes=[*routes, *files], exception_handlers={HTTPException: _no_such})

    def end(self) -> None:
        """No more attacks."""
        self._lanes.end()

    async def _show_offers(self, request: Request) -> Response:
        return _json(await run_in_threadpool(self._offers.as_dict))

    async def _show_victim(self, request: Request) -> Response:
        offer = self._offers.victim(request.path_params["number"])
        victim = await run_in_threadpool(offer.open)
        said = traits(victim)
        return _json({"shape": said.shape, "framed": said.framing is not None})

    async def _show_data(self, request: Request) -> Response:
        asked, number = read_query(request), request.path_params["number"]
        do = self._pictures.thumbnails
        return _json(await run_in_threadpool(do, number, asked.victim or 0, asked.start))

    async def _choose_data(self, request: Request) -> Response:
        return await self._chosen(await read_json(request, DataImage))

    async def _choose_file(self, request: Request) -> Response:
        return await self._chosen(await read_json(request, FileImage))

    async def _chosen(self, asked: DataImage | FileImage) -> Response:
        number, picture = await run_in_threadpool(self._pictures.choose, asked)
        return _json({"image": number, **await run_in_threadpool(picture.as_dict)})

    async def _attack(self, request: Request) -> Response:
        attempt = await read_json(request, Attempt)
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def on_news() -> None:
            with suppress(RuntimeError):  # nobody listens any more
                loop.call_soon_threadsafe(news.set)

        picture = self._pictures[attempt.image]
        number, attack = await run_in_threadpool(self._lanes.begin, attempt, picture, on_news)
        return _Stream(number, attack, news)

    async def _change(self, request: Request) -> Response:
        asked = await read_json(request, Change)
        self._lanes.want(request.path_params["number"], asked)
        return _json({})

    async def _show_runs(self, request: Request) -> Response:
        return _json({"runs": await run_in_threadpool(self._folders.listed)})

    async def _open_run(self, request: Request) -> Response:
        asked = await read_json(request, Folder)
        return _json({"run": await run_in_threadpool(self._folders.add, asked.path)})

    async def _show_run(self, request: Request) -> Response:
        return _json(await run_in_threadpool(self._folders.progress, request.path_params["number"]))

    async def _show_rows(self, request: Request) -> Response:
        asked, run = read_query(request), request.path_params["number"]
        return _json(
            await run_in_threadpool(self._folders.rows, run, asked.setting or 0, asked.start)
        )

    async def _show_row(self, request: Request) -> Response:
        asked, run = read_query(request), request.path_params["number"]
        problem = _problem(request.path_params["problem"])
        return _json(await run_in_threadpool(self._folders.row, run, asked.setting or 0, problem))


class _Stream(StreamingResponse):
    """What an attack says, as it says it; the attack ends with whoever listens."""

    def __init__(self, number: int, attack: LiveAttack, news: asyncio.Event) -> None:
        self._attack = attack
        super().__init__(_events(number, attack, news), media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._attack.end()


async def _events(number: int, attack: LiveAttack, news: asyncio.Event) -> AsyncIterator[str]:
    """Server-sent events, each a list of messages."""
    yield _event([{"kind": "waiting", "attack": number}])
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), _BEAT)
        news.clear()
        messages = attack.take()
        yield _event(messages) if messages else ": still here\n\n"
        if messages and messages[-1]["kind"] == "over":
            return
        await asyncio.sleep(_FRAME)


def _event(messages: list[dict[str, Any]]) -> str:
    return f"data: {json.dumps(messages, allow_nan=False)}\n\n"


def _json(content: Any, status: int = 200) -> Response:
    """JSON in ASCII: names of files need not be Unicode."""
    return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")


def _explained(handler: Handler) -> Handler:
    """``handler``, whose errors are a line for the user."""

    @wraps(handler)
    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except ClientDisconnect:
            return Response()
        except HTTPException:
            raise
        except Exception as error:
            status = 502 if isinstance(error, VictimError) else 400
            if isinstance(error, Busy):
                status = 409
            elif not isinstance(error, BrusleError | OSError):
                status = 500
            is_ours = isinstance(error, BrusleError)
            text = str(error) if is_ours else first_line(error)
            return _json({"error": shortened(shown(text), _LONG)}, status)

    return answered


async def _no_such(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": error.detail}, error.status_code)


def _file(path: Path) -> Handler:
    async def answered(request: Request) -> Response:
        return Response(path.read_bytes(), media_type=_KINDS[path.suffix])

    return answered


def _problem(text: str) -> int:
    """The id of a problem, which may be below zero."""
    if re.fullmatch(r"-?[0-9]{1,19}", text) is None:
        raise InputError("that is no row of a run: load the page again")
    return int(text)
