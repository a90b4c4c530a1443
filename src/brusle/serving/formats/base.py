"""What all formats share: how a call is read, answered and refused."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from torch import Tensor

from brusle.errors import BrusleError, InputError
from brusle.serving.model import Model

VERSION = "1"  # of a model, in addresses


class Refusal(Exception):  # noqa: N818 - it is an answer, too
    """A call that gets an error instead of an answer.

    Attributes:
        status: of HTTP, whatever the format makes of it.
        images: how many images the call holds, as far as they could be counted.
        kind: what a format that names its errors calls it; empty leaves that to the status.
        wait: seconds after which to ask again, if known.
    """

    def __init__(
        self, status: int, message: str, images: int = 0, kind: str = "", wait: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.images, self.kind, self.wait = status, images, kind, wait

    @property
    def headers(self) -> dict[str, str]:
        """What the answer says beside its body."""
        return {} if self.wait is None else {"Retry-After": str(self.wait)}


@dataclass(frozen=True)
class Question:
    """What a call asks.

    Attributes:
        images: ``(c, h, w)`` images for the victim.
        write: makes the answer out of the ``(n, classes)`` scores of these.
        refused: how many images beyond these get an error inside of the answer.
    """

    images: Sequence[Tensor]
    write: Callable[[Tensor], Response]
    refused: int = 0


@dataclass(frozen=True)
class Sent:
    """A call as it came.

    Attributes:
        body: the whole body.
        headers: the headers, whatever their capitals.
        path: the parts of the path that vary.
    """

    body: bytes
    headers: Mapping[str, str]
    path: Mapping[str, str]

    def json(self, end: int | None = None) -> dict[str, Any]:
        """The body as a JSON object, up to byte ``end``."""
        try:
            content = json.loads(self.body[:end])
        except (ValueError, RecursionError):
            raise Refusal(400, "the body is no JSON") from None
        if not isinstance(content, dict):
            raise Refusal(400, "the body is no JSON object")
        return content


Reader = Callable[[Sent], Question]
Infer = Callable[[Reader], Callable[[Request], Any]]


@dataclass(frozen=True)
class Format(ABC):
    """How requests and answers of a service look.

    Attributes:
        model: the model behind it.
        most: most images of one call; None is the usual number of the service.
        usual: that number.
        key_headers: headers that may carry a key, beside ``Authorization: Bearer``.
        no_key: status of an answer to whoever has not the key.
        keyless: paths that need no key.
    """

    model: Model
    most: int | None = None
    usual: ClassVar[int] = 64
    key_headers: ClassVar[tuple[str, ...]] = ()
    no_key: ClassVar[int] = 401
    keyless: ClassVar[tuple[str, ...]] = ()

    @property
    def limit(self) -> int:
        """Most images of one call."""
        return self.most or self.usual

    @abstractmethod
    def routes(self, infer: Infer) -> list[Route]:
        """All addresses of the service.

        Args:
            infer: makes what answers a call out of what reads it.
        """

    @abstractmethod
    def victim(self, url: str) -> str:
        """The name by which brusle attacks this service."""

    @property
    def kind_of_scores(self) -> str:
        """What a client must be told that tensors are; empty if they are logits, as usual."""
        return "" if self.model.victim.output == "logits" else self.model.victim.output

    @property
    def size(self) -> str:
        """What a client must be told that photographs are brought to; empty if nobody knows."""
        shape = self.model.shape
        return f"{shape[1]},{shape[2]}" if shape else ""

    def body_of_error(self, refusal: Refusal) -> Any:
        """What an error looks like."""
        return {"error": str(refusal)}

    def error(self, refusal: Refusal) -> Response:
        """The answer to a call that is refused."""
        return JSONResponse(self.body_of_error(refusal), refusal.status, headers=refusal.headers)

    def keys(self, request: Request) -> list[str]:
        """The keys that a request carries, wherever this service expects them."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        bearer = [token.strip()] if scheme.lower() == "bearer" else []
        return bearer + [request.headers.get(header, "") for header in self.key_headers]

    def check_count(self, images: int) -> None:
        """Raise if a call holds too many images, or none."""
        if images > self.limit:
            raise Refusal(400, f"a call holds at most {self.limit} images, not {images}", images)
        if images < 1:
            raise Refusal(400, "the call holds no image")

    def check_name(self, path: Mapping[str, str]) -> None:
        """Raise if the model of the path is not this one."""
        if path["model"] != self.model.name or path.get("version", VERSION) != VERSION:
            raise Refusal(404, f"there is no such model, but {self.model.name!r}")

    def pictures(self, contents: Sequence[Any]) -> list[Tensor]:
        """Images in base64, each as the victim takes it; all must be readable."""
        self.check_count(len(contents))
        try:
            return [self.model.picture(base64_bytes(content)) for content in contents]
        except BrusleError as error:
            raise Refusal(400, str(error), len(contents), kind="image") from error


def with_options(name: str, **options: str) -> str:
    """The name of a victim, with the options that say something."""
    said = "&".join(f"{option}={value}" for option, value in options.items() if value)
    return f"{name}?{said}" if said else name


def base64_bytes(content: Any) -> bytes:
    """What base64 encodes, in the alphabet of files or of addresses, padded or not."""
    try:
        text = content.encode("ascii").translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except (AttributeError, ValueError):
        raise InputError("an image is no base64 text") from None


def as_images(numbers: np.ndarray[Any, Any], shape: tuple[int, int, int] | None) -> list[Tensor]:
    """A tensor of a request as images; channels stand first or last, as the victim's shape fits.

    Args:
        numbers: four-dimensional; 8-bit levels are taken as such, all else as it is.
        shape: of the victim's images, if fixed.
    """
    count = len(numbers) if numbers.ndim else 0
    if numbers.ndim != 4 or numbers.size == 0:
        raise Refusal(400, f"a tensor of images has 4 dimensions, not shape {numbers.shape}")
    if shape is None:
        first = numbers.shape[1] in (1, 3, 4) or numbers.shape[3] not in (1, 3, 4)
    else:
        first = numbers.shape[1:] == shape
        if not first and numbers.shape[1:] != (*shape[1:], shape[0]):
            found, wanted = list(numbers.shape[1:]), list(shape)
            raise Refusal(400, f"images are of shape {found}, the model takes {wanted}", count)
    ordered = numbers if first else numbers.transpose(0, 3, 1, 2)
    values = np.array(ordered, dtype=np.float32, order="C")
    if numbers.dtype == np.uint8:
        values /= np.float32(255)
    if not np.isfinite(values).all():
        raise Refusal(400, "a pixel is no finite number", count)
    return list(torch.from_numpy(values))


def whole_number(value: Any, default: int, what: str) -> int:
    """A number of a request; ``default`` if it says none."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refusal(400, f"{what} is no whole number from 0")
    return value
