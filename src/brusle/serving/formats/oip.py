"""The Open Inference Protocol V2 over REST, as KServe, Triton and MLServer speak it.

Tensors come and go as JSON, flat or nested, or as bytes behind the JSON (Triton's extension
``binary_tensor_data``).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from torch import Tensor

from brusle.serving.formats.base import (
    VERSION,
    Format,
    Infer,
    Question,
    Refusal,
    Sent,
    as_images,
    with_options,
)

INPUT = "images"
LENGTH = "Inference-Header-Content-Length"
_TYPES: dict[str, np.dtype[Any]] = {"FP32": np.dtype("<f4"), "UINT8": np.dtype("u1")}


@dataclass(frozen=True)
class OpenInference(Format):
    """``/v2/models/MODEL/infer``; images are float32 in [0, 1], or uint8 levels."""

    keyless: ClassVar[tuple[str, ...]] = ("/v2/health/live", "/v2/health/ready")

    @property
    def output(self) -> str:
        """The name of the output tensor says what it is."""
        return self.model.victim.output

    def routes(self, infer: Infer) -> list[Route]:
        own = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
        about = {"": self._metadata, "/ready": self._state, "/config": self._config}
        return [
            *(Route(path, _alive) for path in self.keyless),
            Route("/v2", _server),
            *(
                Route(at + path, self._about(content))
                for at in own
                for path, content in about.items()
            ),
            *(Route(f"{at}/infer", infer(self._read), methods=["POST"]) for at in own),
        ]

    def victim(self, url: str) -> str:
        return with_options(f"oip:{url}/{self.model.name}", scores=self.kind_of_scores)

    def _about(
        self, content: Callable[[], dict[str, Any]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            self.check_name(request.path_params)
            return JSONResponse(content())

        return answer

    def _metadata(self) -> dict[str, Any]:
        shape = [-1, *(self.model.shape or (-1, -1, -1))]
        classes = self.model.classes or -1
        return {
            "name": self.model.name,
            "versions": [VERSION],
            "platform": "brusle",
            "inputs": [{"name": INPUT, "datatype": "FP32", "shape": shape}],
            "outputs": [{"name": self.output, "datatype": "FP32", "shape": [-1, classes]}],
        }

    def _state(self) -> dict[str, Any]:
        return {"name": self.model.name, "ready": True}

    def _config(self) -> dict[str, Any]:
        shape = self.model.shape or (-1, -1, -1)
        return {
            "name": self.model.name,
            "max_batch_size": self.limit,
            "input": [{"name": INPUT, "data_type": "TYPE_FP32", "dims": shape}],
            "output": [
                {
                    "name": self.output,
                    "data_type": "TYPE_FP32",
                    "dims": [self.model.classes or -1],
                }
            ],
        }

    def _read(self, sent: Sent) -> Question:
        self.check_name(sent.path)
        end = _header_length(sent)
        asked = sent.json(end)
        inputs = asked.get("inputs")
        if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
            raise Refusal(400, f"the model takes one input, {INPUT!r}")
        numbers = _tensor(inputs[0], sent.body[len(sent.body) if end is None else end :])
        self.check_count(len(numbers))
        images = as_images(numbers, self.model.shape)
        binary = self._wants_binary(asked, len(images))
        return Question(images, partial(self._write, binary=binary, call=asked.get("id")))

    def _wants_binary(self, asked: dict[str, Any], images: int) -> bool:
        wanted = asked.get("outputs") or [{"name": self.output}]
        named = isinstance(wanted, list) and all(isinstance(one, dict) for one in wanted)
        if not named or any(one.get("name") != self.output for one in wanted):
            raise Refusal(400, f"the model has one output, {self.output!r}", images)
        usual = _parameters(asked).get("binary_data_output", False)
        return any(bool(_parameters(one).get("binary_data", usual)) for one in wanted)

    def _write(self, scores: Tensor, binary: bool, call: Any) -> Response:
        values = self.model.tensor(scores)
        output: dict[str, Any] = {
            "name": self.output,
            "datatype": "FP32",
            "shape": list(values.shape),
        }
        answer = {
            "model_name": self.model.name,
            "model_version": VERSION,
            **({} if call is None else {"id": str(call)}),
            "outputs": [output],
        }
        if not binary:
            output["data"] = values.ravel().tolist()
            return JSONResponse(answer)
        content = values.astype("<f4").tobytes()
        output["parameters"] = {"binary_data_size": len(content)}
        header = json.dumps(answer).encode()
        return Response(
            header + content,
            headers={LENGTH: str(len(header)), "Content-Type": "application/octet-stream"},
        )


async def _alive(request: Request) -> Response:
    return Response()


async def _server(request: Request) -> Response:
    return JSONResponse(
        {"name": "brusle", "version": VERSION, "extensions": ["binary_tensor_data"]}
    )


def _header_length(sent: Sent) -> int | None:
    """Bytes of JSON before the tensors; None if all is JSON."""
    text = sent.headers.get(LENGTH)
    if text is None:
        return None
    if not text.isdecimal() or int(text) > len(sent.body):
        raise Refusal(400, f"{LENGTH} is no number of bytes of the body")
    return int(text)


def _tensor(given: dict[str, Any], content: bytes) -> NDArray[Any]:
    """The numbers of an input, from its JSON or from the bytes behind."""
    shape, datatype = given.get("shape"), given.get("datatype")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise Refusal(400, "the shape of the input is no list of whole numbers")
    if datatype not in _TYPES:
        raise Refusal(400, f"the input is of type {datatype!r}: send FP32 or UINT8", _count(shape))
    size = _parameters(given).get("binary_data_size")
    try:
        if size is None:
            numbers = np.array(given.get("data"), dtype=_TYPES[datatype])
        elif size == len(content):
            numbers = np.frombuffer(content, _TYPES[datatype])
        else:
            raise ValueError(f"{len(content)} bytes follow, not {size}")
        return numbers.reshape(shape)
    except (ValueError, TypeError, OverflowError):
        raise Refusal(400, f"the data of the input do not fill {shape}", _count(shape)) from None


def _count(shape: list[int]) -> int:
    return shape[0] if shape else 0


def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    parameters = given.get("parameters")
    return parameters if isinstance(parameters, dict) else {}
