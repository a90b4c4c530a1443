"""Who may speak with the studio: the page that it has sent itself, and nobody else.

Anybody on this machine can reach a port of it, and every page that a browser shows can make that
browser send requests there. So

* the ``Host`` must be this machine's (a name of somebody else's that leads here is refused),
* an ``Origin`` must be ours, and so must what the browser says about who asks (``Sec-Fetch-Site``),
* everything needs a secret that is new each time.

The address that the user opens holds the token. It is exchanged for a cookie, which opens the
files of the page and nothing else, and the page gets the token behind a ``#``, which no browser
sends. The page takes it out of the address and sends it as a header with each question. A cookie
alone would not do: browsers send it to every port of this machine, so that any other server here
could collect it. And a header that only our page can add is one that no other page can forge.
"""

from __future__ import annotations

import hmac
import secrets

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "x-brusle-token"
QUESTIONS = "/api/"  # what stands below asks; all else are files of the page
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_OURS = (None, "same-origin", "none")  # a program, our page, or the user's own hand


class Guard:
    """An ASGI application that lets some requests through to another.

    Args:
        app: the other.
        port: where the studio listens.

    Attributes:
        token: the secret.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self._pass = secrets.token_urlsafe(32)
        self._app, self._cookie = app, f"brusle-studio-{port}"
        usual = ("127.0.0.1", "localhost") if port == 80 else ()
        self._hosts = {*usual, f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse to."""
        if scope["type"] != "http":
            return  # no web sockets here, and nothing to do at the start

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._choose(scope)(scope, receive, sent)

    def _choose(self, scope: Scope) -> ASGIApp:
        headers, path = Headers(scope=scope), scope["path"]
        if headers.getlist("host")[1:] or headers.get("host", "").lower() not in self._hosts:
            return _refused(421, "this is another host's: open the address that brusle printed")
        if not self._is_ours(headers):
            return _refused(403, "another page asks: open the address in a window of its own")
        given = QueryParams(scope["query_string"]).get("token")
        if path == "/" and scope["method"] == "GET" and given is not None:
            return self._welcome() if _same(given, self.token) else _locked()
        if _same(headers.get(TOKEN, ""), self.token):
            return self._app
        if not path.startswith(QUESTIONS) and _same(self._carried(headers), self._pass):
            return self._app
        return _locked()

    def _is_ours(self, headers: Headers) -> bool:
        """Whether what the browser says about the asking page allows that it is ours."""
        known = headers.get("origin") in (None, *self._origins)
        return known and headers.get("sec-fetch-site") in _OURS

    def _welcome(self) -> Response:
        """To the page itself, with a cookie for its files and the token for its script."""
        there = RedirectResponse(f"/#token={self.token}", 303)
        there.set_cookie(self._cookie, self._pass, httponly=True, samesite="strict")
        return there

    def _carried(self, headers: Headers) -> str:
        return cookie_parser(headers.get("cookie", "")).get(self._cookie, "")


def _same(given: str, secret: str) -> bool:
    """In a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode(errors="replace"), secret.encode())


def _locked() -> Response:
    return _refused(401, "the token is missing or wrong: open the address that brusle printed")


def _refused(status: int, reason: str) -> Response:
    return PlainTextResponse(reason + "\n", status)
