"""TensorFlow Serving's REST interface, which is KServe's V1 as well.

tfserving:http://host:port/MODEL?layout=nhwc|nchw&type=float32|uint8&signature=NAME
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from brusle.names import Name
from brusle.replies import Reply
from brusle.victims.remote.connecting import Unconnected
from brusle.victims.remote.options import (
    split_model,
    take_count,
    take_layout,
    take_numbers,
    take_vector,
    take_version,
)
from brusle.victims.remote.pixels import (
    Layout,
    Numbers,
    find_layout,
    find_shape,
    laid_out,
    whole_numbers,
)
from brusle.victims.remote.service import (
    JSON,
    About,
    Call,
    Failure,
    Get,
    Images,
    Response,
    Service,
    as_json,
)

_TYPES: dict[str, Numbers] = {"DT_FLOAT": "float32", "DT_UINT8": "uint8"}
_MOST = 16


class TensorFlowServing(Service):
    """``POST /v1/models/MODEL:predict`` with rows of images.

    Args:
        address: URL of the model.
        about: what it is.
        layout: order of the axes; None asks the server.
        numbers: type of the numbers; None asks the server.
        signature: which of the model's signatures is called; empty is the usual one.
        output: which of several outputs the scores are; empty if there is one.
        most: most images in a call.
    """

    kind = "tfserving"

    def __init__(
        self,
        address: str,
        about: About,
        layout: Layout | None,
        numbers: Numbers | None,
        signature: str = "",
        output: str = "",
        most: int = _MOST,
    ) -> None:
        facts = {"layout": layout, "type": numbers, "signature": signature, "output": output}
        super().__init__(address, about, most, scores=about.output, size=about.shape, **facts)
        self._layout, self._numbers = layout, numbers
        self._signature, self._output = signature, output

    def prepare(self, get: Get) -> None:
        """Read shape and type of the images, where the server says; KServe does not."""
        said = _input(get(f"{self.address}/metadata"), self._signature or "serving_default")
        dims = said.get("tensor_shape", {}).get("dim") or []
        axes = whole_numbers([dim.get("size") for dim in dims])[-3:]
        self._layout = self._layout or find_layout(axes, "nhwc")
        self._numbers = self._numbers or _TYPES.get(said.get("dtype", ""))
        if self.about.shape is None:
            self.about = self.about.of_shape(find_shape(axes, self._layout))

    def request(self, images: Images) -> Call:
        """As in `Service`."""
        pixels = laid_out(images, self._layout or "nhwc", self._numbers or "float32")
        body: dict[str, Any] = {"instances": pixels.tolist()}
        if self._signature:
            body["signature_name"] = self._signature
        return Call("POST", f"{self.address}:predict", JSON | self.headers, as_json(body))

    def replies(self, response: Response, count: int) -> list[Reply]:
        """As in `Service`."""
        return [self._reply(row) for row in response.json()["predictions"]]

    def _reply(self, row: Any) -> Reply:
        if isinstance(row, dict):
            if self._output not in row and len(row) > 1:
                names = ", ".join(map(str, row))[:80]
                raise Failure("refused", f"it answers with {names}: choose one with output=")
            row = row[self._output] if self._output else next(iter(row.values()))
        scores = np.array(row, np.float64).reshape(-1)
        if len(scores) < 2:
            raise Failure("nonsense", "it answered one number for an image, and no scores")
        return Reply(scores)


def _input(page: Response | None, signature: str) -> dict[str, Any]:
    """What a server says of its first input; nothing if it says nothing."""
    if page is None or page.status != 200:
        return {}
    try:
        said = page.json()["metadata"]["signature_def"]["signature_def"][signature]["inputs"]
        return dict(next(iter(said.values())))
    except (Failure, KeyError, TypeError, ValueError, AttributeError, StopIteration):
        return {}


def open_tfserving(name: Name, device: torch.device) -> Unconnected:
    """The service that ``name`` asks for."""
    base, model = split_model(name)
    address = f"{base}/v1/models/{model}{take_version(name)}"
    layout, numbers = take_layout(name), take_numbers(name)
    signature, output = name.take("signature") or "", name.take("output") or ""
    about, most = take_vector(name), take_count(name, "most", _MOST)
    token = name.take("token") or ""
    name.done()
    service = TensorFlowServing(address, about, layout, numbers, signature, output, most or _MOST)
    service.token = token
    return Unconnected(name.text, service, device)
