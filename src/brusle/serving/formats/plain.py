"""Plain JSON: pictures in, lists of labels out; and the same in Hugging Face's shape."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

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
    whole_number,
    with_options,
)
from brusle.serving.model import Labels

_FIELD = b"image"
_USUAL_LABELS = 5
_FUNCTIONS = ("softmax", "sigmoid", "none")


@dataclass(frozen=True)
class Plain(Format):
    """``/classify``, and ``/models/MODEL`` as Hugging Face has it."""

    key_headers: ClassVar[tuple[str, ...]] = ("x-api-key",)

    def routes(self, infer: Infer) -> list[Route]:
        return [
            Route("/classify", infer(self._read), methods=["POST"]),
            Route("/models/{model}", infer(self._read_inputs), methods=["POST"]),
        ]

    def victim(self, url: str) -> str:
        return with_options(f"huggingface-api:{url}/models/{self.model.name}", size=self.size)

    def _read(self, sent: Sent) -> Question:
        if sent.headers.get("content-type", "").lower().startswith("multipart/"):
            return Question([self._uploaded(sent)], partial(self._write, True))
        asked = sent.json()
        if "images" not in asked:
            return Question(self.pictures([asked.get("image")]), partial(self._write, True))
        if not isinstance(asked["images"], list):
            raise Refusal(400, "images is no list")
        return Question(self.pictures(asked["images"]), partial(self._write, False))

    def _uploaded(self, sent: Sent) -> Tensor:
        """The file of a multipart form."""
        files = _files(sent)
        if len(files) != 1:
            raise Refusal(400, "the form has not one file in its field image", len(files))
        try:
            return self.model.picture(files[0])
        except BrusleError as error:
            raise Refusal(400, str(error), 1, kind="image") from error

    def _write(self, alone: bool, scores: Tensor) -> Response:
        answers = [
            {"labels": self._labels(labels), "version": self.model.version}
            for labels in self.model.lists(scores)
        ]
        return JSONResponse(answers[0] if alone else {"results": answers})

    def _read_inputs(self, sent: Sent) -> Question:
        self.check_name(sent.path)
        asked = sent.json()
        parameters = asked.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise Refusal(400, "parameters is no object")
        most = whole_number(parameters.get("top_k"), _USUAL_LABELS, "top_k")
        function = parameters.get("function_to_apply") or "softmax"
        if function not in _FUNCTIONS:
            raise Refusal(400, f"function_to_apply is none of {', '.join(_FUNCTIONS)}")
        images = self.pictures([asked.get("inputs")])
        return Question(images, partial(self._write_scores, most, function))

    def _write_scores(self, most: int, function: str, scores: Tensor) -> Response:
        if self.model.victim.output == "logits" and function != "none":
            scores = scores.softmax(1) if function == "softmax" else scores.sigmoid()
        (labels,) = self.model.best(scores, min(most, self.model.top))
        return JSONResponse(self._labels(labels))

    def _labels(self, labels: Labels) -> list[dict[str, Any]]:
        return [{"label": self.model.title(number), "score": score} for number, score in labels]


def _files(sent: Sent) -> list[bytes]:
    """The contents of all files in the field ``image``."""
    from python_multipart import parse_form
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import File

    found: list[bytes] = []

    def keep(file: File) -> None:
        if file.field_name == _FIELD:
            file.file_object.seek(0)
            found.append(file.file_object.read())

    kind = sent.headers.get("content-type", "").encode("latin-1")
    try:
        parse_form({"Content-Type": kind}, io.BytesIO(sent.body), None, keep)
    except (FormParserError, ValueError):
        raise Refusal(400, "the body is no form that can be read") from None
    return found
