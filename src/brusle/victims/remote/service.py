"""What a format of a service is: how images become a request, and a response becomes replies."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from brusle.data.images import Framing
from brusle.errors import InputError
from brusle.replies import Reply
from brusle.scores import MISSING, Gives, Missing, Output
from brusle.trouble import kind_of_code, seconds_asked
from brusle.victims.options import whole_framing
from brusle.victims.remote.masking import from_environment, line, masked, without_keys

Images = NDArray[np.float32]  # (n, c, h, w) in [0, 1]
_TEXTS = ("error", "message", "detail", "error_message")
NOT_FINITE = "the victim answered NaN or infinite scores"


@dataclass(frozen=True)
class Call:
    """One request over HTTP.

    Attributes:
        method: such as ``"POST"``.
        url: with its query.
        headers: by name; some may be secret.
        content: the body.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Response:
    """What came back, whole.

    Attributes:
        status: of HTTP.
        headers: by names in small letters.
        content: the body, decoded.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = field(default=b"", repr=False)

    def json(self) -> Any:
        """The body as JSON; raises `Failure` if it is none."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            said = line(self.content[:4000].decode(errors="replace"), 60)
        what = "a web page" if said.lower().startswith(("<!doctype", "<html")) else repr(said)
        raise Failure("nonsense", f"it answered {what if said else 'nothing'} instead of JSON")


Fault = Literal["busy", "nonsense", "refused", "image"]


class Failure(Exception):  # noqa: N818 - it says what went wrong, and is told of as an error later
    """A call that brought no answer; the reason has no secrets.

    Attributes:
        fault: the service is busy or out of reach; or it answered nonsense; or it refuses whatever
            is asked; or it refuses this image, or this many.
        reason: for people.
        retry_after: seconds that the service asks to wait.
        status: of HTTP, if there was an answer.
    """

    def __init__(
        self,
        fault: Fault,
        reason: str,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.fault, self.reason = fault, reason
        self.retry_after, self.status = retry_after, status


@dataclass(frozen=True)
class About:
    """What a service says of itself, or the user of it; names as in `brusle.victim.Traits`.

    Attributes:
        output: what its scores are.
        gives: all scores, or those of some labels.
        classes: names of its classes, in the order of its scores.
        width: how many scores it gives, if known.
        shape: of its images, if fixed.
        framing: how photographs are brought to a size for it.
        labelled: scores come with labels.
        aliases: a label to others that mean the same.
        missing: what an absent label counts as.
    """

    output: Output = "logits"
    gives: Gives = "scores"
    classes: tuple[str, ...] | None = None
    width: int | None = None
    shape: tuple[int, int, int] | None = None
    framing: Framing | None = None
    labelled: bool = False
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing: Missing = MISSING

    def of_shape(self, shape: tuple[int, int, int] | None) -> About:
        """The same for images of this shape, or of any."""
        framing = None if shape is None else whole_framing((shape[1], shape[2]))
        return replace(self, shape=shape, framing=framing)


Get = Callable[[str], Response | None]  # a page of the service; None if there is none


class Service:
    """A format: base of all, with what most of them do not need.

    Attributes:
        kind: of the victim's name.
        address: URL that requests go to, without a query.
        about: what the service is.
        most_images: most in one call.
        headers: of every request; some are secret.
        fingerprint: a hash of what answers and how it is asked; not of keys.
        settled: how requests are written is decided. As long as it is not, the first image is sent
            alone, in the format that is tried; `settle` says how that went.
        signs: requests are signed, which may take a while.
        token: environment variable whose value goes along as a bearer token; none if empty.
        success: statuses of HTTP that an answer has.
        retry: statuses that are the service's trouble, beyond the usual ones.
    """

    kind = ""
    settled = True
    signs = False
    token = ""
    success: frozenset[int] = frozenset({200})
    retry: frozenset[int] = frozenset()

    def __init__(self, address: str, about: About, most_images: int = 1, **options: Any) -> None:
        self.address, self.about, self.most_images = address, about, most_images
        self.headers: dict[str, str] = {}
        facts = json.dumps([self.kind, address, options], sort_keys=True, default=str)
        self.fingerprint = hashlib.sha256(facts.encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({masked(self.address)!r})"

    def unlock(self) -> None:
        """Read keys, and what else the environment says; nothing is sent."""
        if self.token:
            value = from_environment(self.token, self.kind)
            self.headers = {"Authorization": f"Bearer {value}"}

    def prepare(self, get: Get) -> None:
        """Read what the service says of itself, which costs nothing."""

    def settle(self, worked: bool) -> None:
        """The first call in the format that is tried worked, or it did not: take the other."""

    def unsettle(self) -> None:
        """The other format did not work either: the image says nothing, try with the next."""

    def request(self, images: Images) -> Call:
        """The request for some images, not signed yet."""
        raise NotImplementedError

    def signed(self, call: Call) -> Call:
        """The request as it is sent now; signatures are not valid for long."""
        return call

    def judge(self, response: Response) -> None:
        """Raise `Failure` if the status is not that of an answer."""
        check_status(response, self.success, self.retry)

    def replies(self, response: Response, count: int) -> list[Reply]:
        """Replies to ``count`` images; raises `Failure` if there are none."""
        raise NotImplementedError

    def extracted(self, response: Response, count: int) -> list[Reply]:
        """Replies to ``count`` images, checked: finite numbers, and one for each image."""
        self.judge(response)
        try:
            replies = self.replies(response, count)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
            replies = None  # the exception may quote the body
        if replies is None:
            said = line(response.content[:4000].decode(errors="replace"), 80)
            raise Failure("nonsense", f"it answered what is not in its format: {said}")
        if len(replies) != count:
            raise Failure("nonsense", f"it answered {len(replies)} rows for {count} images")
        return [_discreet(_finite(reply)) for reply in replies]


def _discreet(reply: Reply) -> Reply:
    """A reply that can be stored, whatever a service calls its labels."""
    return replace(
        reply,
        labels=None if reply.labels is None else tuple(map(without_keys, reply.labels)),
        titles=None if reply.titles is None else tuple(map(without_keys, reply.titles)),
        error=without_keys(reply.error),
        version=without_keys(reply.version),
    )


def _finite(reply: Reply) -> Reply:
    if np.isfinite(reply.scores).all():
        return reply
    return replace(reply, scores=np.zeros(0), labels=None, titles=None, error=NOT_FINITE)


def check_status(
    response: Response,
    success: frozenset[int] = frozenset({200}),
    retry: frozenset[int] = frozenset(),
) -> None:
    """Raise `Failure` unless the status is that of an answer."""
    status = response.status
    if status in success:
        return
    reason = f"HTTP {status}"
    said = spoken(response)
    if said:
        reason += f": {said}"
    asked = seconds_asked(response.headers.get("retry-after"))
    kind = kind_of_code(status)
    if status in retry or kind == "unavailable":
        raise Failure("busy", reason, asked, status)
    if kind == "refused":
        raise Failure("refused", reason, status=status)
    raise Failure("image" if 400 <= status < 500 else "nonsense", reason, status=status)


def spoken(response: Response) -> str:
    """What an error of a service says, in a short line."""
    text = response.content[:4000].decode(errors="replace")
    try:
        said = json.loads(response.content)
    except (ValueError, RecursionError):
        return "a web page" if text.lstrip().startswith("<") else line(text, 160)
    for key in 2 * _TEXTS:  # an error may be an object with a message
        if isinstance(said, dict) and said.get(key):
            said = said[key]
    return line(said if isinstance(said, str) else json.dumps(said), 160)


def of_code(code: int | str | None, reason: str) -> Failure:
    """The failure that an error inside an answer is, by its code, as if HTTP had said it."""
    kind = kind_of_code(code)
    fault: Fault = "busy" if kind == "unavailable" else "refused" if kind == "refused" else "image"
    return Failure(fault, f"{code}: {reason}" if code is not None else reason)


def labelled(
    labels: Sequence[Any], scores: Sequence[Any], titles: Sequence[Any] | None = None, **more: Any
) -> Reply:
    """A reply of labels with their scores."""
    if len(labels) != len(scores) or (titles is not None and len(titles) != len(labels)):
        raise Failure("nonsense", f"it answered {len(labels)} labels with {len(scores)} scores")
    return Reply(
        np.array(scores, np.float64).reshape(-1),
        tuple(map(str, labels)),
        None if titles is None else tuple(map(str, titles)),
        **more,
    )


def levels(images: Images) -> NDArray[np.uint8]:
    """Images in 8-bit levels."""
    return np.rint(images * 255).clip(0, 255).astype(np.uint8)


def png(image: Images) -> bytes:
    """One ``(c, h, w)`` image as a PNG: nothing is lost but what is finer than 8 bits."""
    pixels = levels(image).transpose(1, 2, 0)
    if pixels.shape[2] not in (1, 3, 4):
        raise InputError(f"images of {pixels.shape[2]} channels cannot be sent as PNG")
    file = io.BytesIO()
    grey = pixels.shape[2] == 1
    Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if grey else pixels)).save(
        file, "PNG", compress_level=3
    )
    return file.getvalue()


def base64_png(image: Images) -> str:
    """One image as a PNG in letters."""
    return base64.b64encode(png(image)).decode()


def as_json(body: Any) -> bytes:
    """A body of JSON."""
    return json.dumps(body, separators=(",", ":")).encode()


JSON = {"Content-Type": "application/json", "Accept": "application/json"}
