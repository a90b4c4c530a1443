"""One call of a service, shown to people: what was sent, what came back, what was understood."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brusle.replies import Reply
from brusle.text import shown
from brusle.victims.remote.masking import is_telling, masked
from brusle.victims.remote.service import Call, Response

_LETTERS = re.compile(r"[A-Za-z0-9+/=_-]{120,}")
_NUMBERS = re.compile(r"((?:-?\d[\d.eE+-]*[,\s\[\]]+){12})[-\d.eE+,\s\[\]]{60,}")
_MOST = 2000  # characters
_LABELS = 10


@dataclass(frozen=True)
class Trial:
    """A call that was made to be looked at.

    Attributes:
        request_text: the request, with keys masked and pixels shortened.
        response_text: the response, likewise; empty if there was none.
        extracted: what was understood of it, a line for each label.
        error: why nothing was; empty if something was.
    """

    request_text: str
    response_text: str
    extracted: str
    error: str = ""


def trial(
    call: Call, response: Response | None, reply: Reply, classes: Sequence[str] | None = None
) -> Trial:
    """One call as texts; ``classes`` are what scores without labels are of."""
    request = [
        f"{call.method} {masked(call.url)}",
        *_headers(call.headers),
        "",
        _body(call.content),
    ]
    answer: list[str] = []
    if response is not None:
        answer = [
            f"HTTP {response.status}",
            *_headers(response.headers),
            "",
            _body(response.content),
        ]
    return Trial("\n".join(request), "\n".join(answer), _extracted(reply, classes), reply.error)


def _headers(headers: Mapping[str, str]) -> list[str]:
    return [
        shown(f"{name}: {'***' if is_telling(name) else masked(value)}")
        for name, value in headers.items()
    ]


def _body(content: bytes) -> str:
    """A body that people can read: no pixels, no keys, no end without an end."""
    head = content[: 50 * _MOST]
    try:
        text = head.decode()
    except UnicodeDecodeError:
        printable = re.match(rb"[\x20-\x7e\r\n]*", head)
        text = printable[0].decode() if printable else ""
        return _short(text) + f"({len(content):,} bytes)"
    return _short(text) + (f"... ({len(content):,} bytes)" if len(content) > len(head) else "")


def _short(text: str) -> str:
    text = masked(text)  # before a key is cut into one that is not known
    text = _LETTERS.sub(lambda found: f"{found[0][:24]}...({len(found[0]):,} letters)", text)
    text = _NUMBERS.sub(r"\1...", text)
    lines = [shown(part) for part in text.splitlines()]
    whole = "\n".join(lines)
    return whole if len(whole) <= _MOST else whole[:_MOST] + "..."


def _extracted(reply: Reply, classes: Sequence[str] | None) -> str:
    if reply.error:
        return f"no answer: {masked(reply.error)}"
    order = (-reply.scores).argsort(kind="stable")
    names = dict(enumerate(reply.titles or reply.labels or classes or ()))
    lines = [
        f"{float(reply.scores[at]):.6g}  {shown(names.get(at, f'class {at}'))}"
        for at in order[:_LABELS].tolist()
    ]
    if len(order) > _LABELS:
        lines.append(f"... {len(order)} in all")
    if reply.version:
        lines.append(f"version {shown(reply.version)}")
    return "\n".join(lines) or "an empty list of labels"
