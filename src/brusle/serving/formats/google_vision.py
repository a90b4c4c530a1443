"""Google Cloud Vision's ``images:annotate``, as far as it labels images."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from torch import Tensor

from brusle.errors import BrusleError
from brusle.serving.formats.base import (
    Format,
    Infer,
    Question,
    Refusal,
    Sent,
    base64_bytes,
    whole_number,
    with_options,
)
from brusle.serving.model import Labels

_LABELS = ("LABEL_DETECTION", 4)  # by its name, or by its number as the official client sends it
_USUAL_LABELS = 10
_BAD_IMAGE = {"code": 3, "message": "Bad image data."}
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


@dataclass(frozen=True)
class _Wish:
    """What is asked of one image.

    Attributes:
        labels: most labels; None if labels are not asked for.
        place: of the image among the readable ones; None if it cannot be read.
    """

    labels: int | None
    place: int | None


@dataclass(frozen=True)
class GoogleVision(Format):
    """``/v1/images:annotate``; an image that cannot be read has its error inside of the answer."""

    usual: ClassVar[int] = 16
    key_headers: ClassVar[tuple[str, ...]] = ("x-goog-api-key",)
    no_key: ClassVar[int] = 403

    def routes(self, infer: Infer) -> list[Route]:
        return [Route("/v1/images:annotate", infer(self._read), methods=["POST"])]

    def victim(self, url: str) -> str:
        return with_options(f"google-vision:{url}", size=self.size)

    def body_of_error(self, refusal: Refusal) -> Any:
        status = _STATUS.get(refusal.status, "INTERNAL")
        return {"error": {"code": refusal.status, "message": str(refusal), "status": status}}

    def keys(self, request: Request) -> list[str]:
        return [*super().keys(request), request.query_params.get("key", "")]

    @cached_property
    def mids(self) -> list[str]:
        """A stable id for each class that has a name; two classes of one name have two."""
        seen: Counter[str] = Counter()
        ids = []
        for number in range(self.model.classes or 0):
            title = self.model.title(number)
            ids.append(_mid(f"{title} {seen[title]}"))
            seen[title] += 1
        return ids

    def _read(self, sent: Sent) -> Question:
        asked = sent.json().get("requests")
        if not isinstance(asked, list) or not all(isinstance(one, dict) for one in asked):
            raise Refusal(400, 'the body has no "requests": send {"requests": [...]}')
        self.check_count(len(asked))
        wishes: list[_Wish] = []
        images: list[Tensor] = []
        for one in asked:
            image = self._image(one)
            wishes.append(_Wish(_most(one, len(asked)), None if image is None else len(images)))
            images += [] if image is None else [image]
        return Question(images, partial(self._write, wishes), len(asked) - len(images))

    def _image(self, asked: dict[str, Any]) -> Tensor | None:
        """The image of one request; None if it cannot be read."""
        image = asked.get("image")
        try:
            return self.model.picture(base64_bytes(image["content"]))  # type: ignore[index]
        except (BrusleError, KeyError, TypeError):
            return None

    def _write(self, wishes: list[_Wish], scores: Tensor) -> Response:
        lists = self.model.lists(scores)
        return JSONResponse({"responses": [self._response(wish, lists) for wish in wishes]})

    def _response(self, wish: _Wish, lists: list[Labels]) -> dict[str, Any]:
        if wish.place is None:
            return {"error": _BAD_IMAGE}
        labels = lists[wish.place][: wish.labels or 0]
        return {"labelAnnotations": [self._label(*one) for one in labels]} if labels else {}

    def _label(self, number: int, score: float) -> dict[str, Any]:
        title = self.model.title(number)
        mid = self.mids[number] if self.mids else _mid(title)
        return {"mid": mid, "description": title, "score": score, "topicality": score}


def _most(asked: dict[str, Any], images: int) -> int | None:
    """How many labels are asked for."""
    features = asked.get("features")
    if not isinstance(features, list) or not all(isinstance(one, dict) for one in features):
        raise Refusal(400, "a request has no list of features", images)
    wanted = [one for one in features if one.get("type") in _LABELS]
    # zero is how the protocol writes that nothing was said
    most = [whole_number(one.get("maxResults"), 0, "maxResults") for one in wanted]
    return max((number or _USUAL_LABELS for number in most), default=None)


def _mid(text: str) -> str:
    return f"/m/0{hashlib.sha256(text.encode()).hexdigest()[:9]}"
