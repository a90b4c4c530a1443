"""Amazon Rekognition's ``DetectLabels``, in AWS's JSON 1.1 protocol."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from torch import Tensor

from brusle.serving.formats.base import (
    Format,
    Infer,
    Question,
    Refusal,
    Sent,
    whole_number,
    with_options,
)

_TARGET = "RekognitionService.DetectLabels"
_MEDIA = "application/x-amz-json-1.1"
_LARGEST = 5_242_880  # bytes of an image
_LEAST = 55.0
_NAMES = {
    403: "UnrecognizedClientException",
    404: "UnknownOperationException",
    413: "ImageTooLargeException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
_KINDS = {
    "image": "InvalidImageFormatException",
    "large": "ImageTooLargeException",
    "pace": "ProvisionedThroughputExceededException",
}


@dataclass(frozen=True)
class Rekognition(Format):
    """``POST /`` with the operation in a header; one image a call, confidences from 0 to 100.

    As with AWS, a call that is throttled has the status 400, and its error says so.
    """

    usual: ClassVar[int] = 1
    no_key: ClassVar[int] = 403

    def routes(self, infer: Infer) -> list[Route]:
        return [Route("/", infer(self._read), methods=["POST"])]

    def victim(self, url: str) -> str:
        return with_options(f"rekognition:{url}", size=self.size)

    def error(self, refusal: Refusal) -> Response:
        usual = "InvalidParameterException" if refusal.status < 500 else "InternalServerError"
        name = _KINDS.get(refusal.kind) or _NAMES.get(refusal.status, usual)
        status = 400 if refusal.status < 500 else refusal.status
        body = {"__type": name, "message": str(refusal)}
        return JSONResponse(body, status, refusal.headers, media_type=_MEDIA)

    def keys(self, request: Request) -> list[str]:
        """The id of the access key; signatures are not checked."""
        signed = request.headers.get("authorization", "")
        return [*super().keys(request), *re.findall(r"Credential=([^/,\s]+)/", signed)]

    def _read(self, sent: Sent) -> Question:
        if sent.headers.get("x-amz-target") != _TARGET:
            raise Refusal(404, f"the only operation is {_TARGET}")
        asked = sent.json()
        image = asked.get("Image")
        content = image.get("Bytes") if isinstance(image, dict) else None
        if not isinstance(content, str):
            raise Refusal(400, "Image has no Bytes")
        if len(content) * 3 // 4 > _LARGEST:
            raise Refusal(400, f"an image has at most {_LARGEST} bytes", 1, kind="large")
        most = whole_number(asked.get("MaxLabels"), self.model.top, "MaxLabels")
        least = asked.get("MinConfidence", _LEAST)
        if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 100:
            raise Refusal(400, "MinConfidence is no number from 0 to 100", 1)
        return Question(self.pictures([content]), partial(self._write, most, least))

    def _write(self, most: int, least: float, scores: Tensor) -> Response:
        (labels,) = self.model.lists(scores)
        listed: list[dict[str, Any]] = [
            {
                "Name": self.model.title(number),
                "Confidence": 100 * score,
                "Instances": [],
                "Parents": [],
            }
            for number, score in labels
        ]
        kept = [label for label in listed if label["Confidence"] >= least][:most]
        answer = {"Labels": kept, "LabelModelVersion": self.model.version}
        return JSONResponse(answer, media_type=_MEDIA)
