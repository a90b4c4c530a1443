"""The victim's trouble, told from an image's, and the patience to wait until it is over.

A service that cannot be reached, is busy or has run out of memory says nothing about the image it
was asked for. `find_trouble` looks at an exception, and at what caused it (``raise ... from``), and
names the kind of trouble:

* ``"unavailable"``: no connection, a timeout, a dead worker, HTTP 408, 425, 429 and 5xx, or gRPC's
  names for them. It may be over soon; `patiently` waits and tries again.
* ``"refused"``: HTTP 401, 402, 403, 404, 407 and 410. Every image would meet it, and waiting is in
  vain.
* ``"memory"``: there is not enough memory. Smaller calls may help.

Anything else is about the images. Exceptions of common clients are known by what they carry, so
that none of these need be installed. A function of your own says it with
``raise brusle.VictimUnavailable("...", retry_after=5)``.
"""

from __future__ import annotations

import concurrent.futures
import errno
import http.client
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypeVar

import torch

from brusle.calls import check_timeout
from brusle.errors import InputError, VictimUnavailable, first_line, message

T = TypeVar("T")
Kind = Literal["unavailable", "refused", "memory"]

_TYPES = (
    VictimUnavailable,
    ConnectionError,
    TimeoutError,
    socket.gaierror,  # the name of the host is not known
    http.client.IncompleteRead,
    http.client.BadStatusLine,
    concurrent.futures.BrokenExecutor,  # a worker of the victim's was killed
)
_ERRNOS = {  # which have no type of their own
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EMFILE,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENFILE,
    errno.ENOBUFS,
}
_CLIENTS = {  # packages whose exceptions derive from none of these types
    "aiohttp": {"ClientConnectionError", "ClientPayloadError"},
    "botocore": {"ConnectionError", "HTTPClientError"},
    "httpcore": {"NetworkError", "ProtocolError", "TimeoutException"},
    "httpx": {"TransportError"},
    "ray": {"NodeDiedError", "RayActorError", "WorkerCrashedError"},
    "requests": {"ChunkedEncodingError", "ConnectionError", "Timeout"},
    "urllib3": {"MaxRetryError", "ProtocolError", "TimeoutError"},
}
_BUSY = {408, 425, 429}
_REFUSED = {401, 402, 403, 404, 407, 410}
_GRPC: dict[str, Kind] = {
    "ABORTED": "unavailable",
    "DEADLINE_EXCEEDED": "unavailable",
    "INTERNAL": "unavailable",
    "PERMISSION_DENIED": "refused",
    "RESOURCE_EXHAUSTED": "unavailable",
    "UNAUTHENTICATED": "refused",
    "UNAVAILABLE": "unavailable",
    "UNIMPLEMENTED": "refused",
}
# memory that runs out on a CPU or in another runtime is a RuntimeError like any other
_NO_MEMORY = re.compile(r"out of memory|can't allocate memory|failed to allocate memory", re.I)
_THROTTLED = re.compile(r"Throttl|TooManyRequests|ThroughputExceeded|RequestLimitExceeded")
_STORED = re.compile(  # in the reason of a row
    r"the victim raised (\w*(Connect|Timeout|Disconnect|BrokenPipe|Unavailable|OutOfMemory)\w*"
    r"|MemoryError|BrokenProcessPool|BrokenExecutor|IncompleteRead|BadStatusLine|gaierror"
    r"|TooManyRequests|ResourceExhausted|DeadlineExceeded|MaxRetryError|TransportError)\b"
    r"|\b(HTTP|status|code|Error|Response)\W+(\w+\W+){0,2}(408|425|429|5\d\d)\b"
    r"|\b(429|5\d\d) (Client|Server) Error\b"
    r"|timed out|connection (refused|reset|aborted)|too many requests|service unavailable"
    r"|out of memory|can't allocate memory|failed to allocate memory",
    re.I,
)


@dataclass(frozen=True)
class Trouble:
    """What is wrong with a victim.

    Attributes:
        kind: what kind of trouble it is.
        retry_after: seconds that the victim asks to wait; None if it does not say.
    """

    kind: Kind
    retry_after: float | None = None


def find_trouble(error: BaseException) -> Trouble | None:
    """The victim's trouble that ``error`` or one of its causes tells of; None if it is another."""
    for link in _chain(error):
        kind = _kind(link)
        if kind is not None:
            return Trouble(kind, _retry_after(link))
    return None


def tells_of_trouble(reason: str) -> bool:
    """Whether the stored reason of an error is the victim's trouble, as far as words can tell."""
    return _STORED.search(reason) is not None


@dataclass(frozen=True)
class Patience:
    """How long a victim in trouble is waited for, in each call of it.

    Attributes:
        waits: most waits; 0 gives up at once.
        first: seconds of the first wait; each is twice as long as the one before, or as long as
            the victim asks for.
        total: most seconds of all waits together. A victim that asks for more is given up.
        call: most seconds that one call may take; one that takes longer is trouble, too. Then the
            victim is called in a thread of its own. None is no limit.
        sleep: waits for so many seconds.
    """

    waits: int = 6
    first: float = 1.0
    total: float = 60.0
    call: float | None = None
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False, compare=False)

    def __post_init__(self) -> None:
        if min(self.waits, self.first, self.total) < 0:
            raise InputError(f"{self}: waits, first and total must not be below 0")
        check_timeout(self.call)

    def next(self, waits: int, waited: float, asked: float | None) -> float | None:
        """Seconds of the next wait, after so many of them; None if the patience is over."""
        left = self.total - waited
        if waits >= self.waits or left <= 0 or (asked or 0) > left:
            return None
        return min(left, max(asked or 0.0, self.first * 2.0**waits))


PATIENCE, NO_PATIENCE = Patience(), Patience(waits=0)


def patiently(
    call: Callable[[], T],
    patience: Patience,
    name: str,
    on_failure: Callable[[], None] = lambda: None,
) -> T:
    """Call, and again while the victim called ``name`` is in trouble that may be over soon.

    Args:
        call: what to do.
        patience: how long to try.
        name: for the message.
        on_failure: called after every try that has met trouble.

    Raises:
        VictimUnavailable: the patience is over, or waiting is in vain. Other exceptions, those of
            memory, and those of a victim that has been patient itself, are passed on.
    """
    waits, waited = 0, 0.0
    while True:
        try:
            return call()
        except Exception as error:
            trouble = find_trouble(error)
            if trouble is None or trouble.kind == "memory" or _is_final(error):
                raise
            on_failure()
            pause = None
            if trouble.kind == "unavailable":
                pause = patience.next(waits, waited, trouble.retry_after)
            if pause is None:
                raise VictimUnavailable(_gave_up(name, error, trouble, waits, waited)) from error
        patience.sleep(pause)
        waits, waited = waits + 1, waited + pause


def _is_final(error: Exception) -> bool:
    """Whether a victim that is patient itself has given up."""
    return isinstance(error, VictimUnavailable) and error.final


def _gave_up(name: str, error: Exception, trouble: Trouble, waits: int, waited: float) -> str:
    """What happened, in one line."""
    reason = str(error) if isinstance(error, VictimUnavailable) else first_line(error)
    if trouble.kind == "refused":
        return f"{name} refuses to answer ({reason}): check its address and your rights"
    text = f"{name} does not answer ({reason})"
    if waits:
        text += f", tried {waits + 1} times in {waited:.0f} s"
    if trouble.retry_after:
        text += f"; it asks to wait {trouble.retry_after:.0f} s"
    return text


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and its causes; urllib keeps a cause as the reason."""
    link: Any = error
    seen: set[int] = set()
    while isinstance(link, BaseException) and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or _attribute(link, "reason")


def _kind(error: BaseException) -> Kind | None:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "memory"
    if isinstance(error, RuntimeError) and _NO_MEMORY.search(message(error)):
        return "memory"
    kind = kind_of_code(_code(error))
    if kind is not None:
        return kind
    of_client = any(c.__name__ in _names_of(c) for c in type(error).__mro__)
    if isinstance(error, _TYPES) or of_client:
        return "unavailable"
    if isinstance(error, OSError) and error.errno in _ERRNOS:
        return "unavailable"
    return None


def _names_of(kind: type) -> set[str]:
    """The exceptions that are known of the package that ``kind`` is from."""
    return _CLIENTS.get(kind.__module__.partition(".")[0].rstrip("2"), set())


def _code(error: BaseException) -> int | str | None:
    """The status that an exception carries: a number of HTTP, or a name of gRPC."""
    response = _attribute(error, "response")
    if isinstance(response, Mapping):  # of botocore
        if _THROTTLED.search(str(response.get("Error"))):
            return 429  # which some services of AWS call 400
        status: int | None = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status
    for holder in (response, error):
        for name in ("status_code", "code", "status"):
            code = _attribute(holder, name)
            if isinstance(code, int):
                return int(code)
            if callable(code):  # of gRPC: an enumeration
                named = getattr(_called(code), "name", None)
                if isinstance(named, str):
                    return named
    return None


def _attribute(holder: Any, name: str) -> Any:
    """An attribute, or None; an exception of somebody's may raise when it is looked at."""
    return _called(lambda: getattr(holder, name, None))


def _called(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception:  # whatever it is, it is no status
        return None


def kind_of_code(code: int | str | None) -> Kind | None:
    """The kind of trouble that a status of HTTP or a name of gRPC tells of; None if of none."""
    if isinstance(code, str):
        return _GRPC.get(code)
    if code in _BUSY or (code is not None and 500 <= code <= 599):
        return "unavailable"
    return "refused" if code in _REFUSED else None


def _retry_after(error: BaseException) -> float | None:
    """Seconds that an exception, or the header of its response, asks to wait."""
    asked = _attribute(error, "retry_after")
    response = _attribute(error, "response")
    if isinstance(response, Mapping):
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        asked = headers.get("retry-after", asked)
    for holder in (response, error):
        headers = _attribute(holder, "headers")
        if asked is None and headers is not None and hasattr(headers, "get"):
            asked = headers.get("Retry-After")
    return seconds_asked(asked)


def seconds_asked(asked: Any) -> float | None:
    """Seconds, or a date as HTTP writes it."""
    try:
        return max(0.0, float(asked))
    except (TypeError, ValueError):
        pass
    try:
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    except (TypeError, ValueError, AttributeError):
        return None
