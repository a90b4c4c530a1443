"""The Open Inference Protocol by hand, to ask a server without the client that is tested."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from real_servers import MODEL

Array = NDArray[Any]


@dataclass(frozen=True)
class Request:
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


def in_json(images: Array, datatype: str = "FP32", **other: Any) -> Request:
    """The numbers in JSON; ``other`` is said of the tensor, instead or as well."""
    tensor = _tensor(images, datatype) | {"data": images.ravel().tolist()} | other
    return Request(json.dumps({"inputs": [tensor]}).encode())


def in_binary(images: Array, datatype: str = "FP32", **other: Any) -> Request:
    """The bytes after a header in JSON; ``other`` is said beside the tensor."""
    tensor = _tensor(images, datatype) | {"parameters": {"binary_data_size": images.nbytes}}
    header = json.dumps({"inputs": [tensor]} | other).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(header)),
    }
    return Request(header + np.ascontiguousarray(images).tobytes(), headers)


def ask(url: str, request: Request, model: str = MODEL) -> httpx.Response:
    where = f"{url}/v2/models/{model}/infer"
    return httpx.post(where, content=request.body, headers=request.headers, timeout=30)


def logits(answer: httpx.Response) -> Array:
    """The scores in an answer, in JSON or after its header."""
    assert answer.status_code == 200, answer.text
    length = int(answer.headers.get("Inference-Header-Content-Length", len(answer.content)))
    (output,) = json.loads(answer.content[:length])["outputs"]
    if "data" in output:
        return np.array(output["data"], np.float32).reshape(output["shape"])
    return np.frombuffer(answer.content[length:], np.float32).reshape(output["shape"])


def _tensor(images: Array, datatype: str) -> dict[str, Any]:
    return {"name": "images", "shape": images.shape, "datatype": datatype}
