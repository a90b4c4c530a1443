"""TensorFlow Serving's REST interface, which is KServe's V1 as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
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


@dataclass(frozen=True)
class TensorFlowServing(Format):
    """``/v1/models/MODEL:predict``; instances are nested lists of numbers in [0, 1]."""

    def routes(self, infer: Infer) -> list[Route]:
        return [
            Route("/v1/models/{model}:predict", infer(self._read), methods=["POST"]),
            Route("/v1/models/{model}/metadata", self._metadata),
            Route("/v1/models/{model}", self._status),
        ]

    def victim(self, url: str) -> str:
        name = f"tfserving:{url}/{self.model.name}"
        return with_options(name, scores=self.kind_of_scores, size=self.size)

    async def _status(self, request: Request) -> Response:
        self.check_name(request.path_params)
        status = {"error_code": "OK", "error_message": ""}
        state = {"version": VERSION, "state": "AVAILABLE", "status": status}
        return JSONResponse({"model_version_status": [state]})

    async def _metadata(self, request: Request) -> Response:
        self.check_name(request.path_params)
        signature = {
            "inputs": {"images": _tensor("images", (self.model.shape or (-1, -1, -1)))},
            "outputs": {"scores": _tensor("scores", (self.model.classes or -1,))},
            "method_name": "tensorflow/serving/predict",
        }
        return JSONResponse(
            {
                "model_spec": {"name": self.model.name, "version": VERSION},
                "metadata": {
                    "signature_def": {"signature_def": {"serving_default": signature}},
                },
            }
        )

    def _read(self, sent: Sent) -> Question:
        self.check_name(sent.path)
        instances = sent.json().get("instances")
        if not isinstance(instances, list):
            raise Refusal(400, 'the body has no "instances": send {"instances": [...]}')
        self.check_count(len(instances))
        try:
            numbers = np.array(instances, dtype=np.float32)
        except (ValueError, TypeError, OverflowError):
            reason = "instances are no nested lists of numbers, all of one shape"
            raise Refusal(400, reason, len(instances)) from None
        return Question(as_images(numbers, self.model.shape), self._write)

    def _write(self, scores: Tensor) -> Response:
        return JSONResponse({"predictions": self.model.tensor(scores).tolist()})


def _tensor(name: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    dims = [{"size": str(size), "name": ""} for size in (-1, *sizes)]
    return {
        "dtype": "DT_FLOAT",
        "tensor_shape": {"dim": dims, "unknown_rank": False},
        "name": f"{name}:0",
    }
