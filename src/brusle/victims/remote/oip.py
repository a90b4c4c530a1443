"""The Open Inference Protocol, version 2, over HTTP: KServe, Triton, MLServer, OpenVINO and others.

    oip:http://host:port/MODEL?input=NAME&output=NAME&layout=nchw|nhwc&type=float32|uint8

What the server says of its tensors is believed, and options go before it. Images are sent as raw
bytes behind the JSON if the first one shows that the server reads them that way: a server that can
need not say so, and some that say so cannot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

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
    check_status,
)

_LENGTH = "inference-header-content-length"
_TYPES: dict[str, Numbers] = {"FP32": "float32", "UINT8": "uint8"}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_NUMBERS: dict[str, str] = {
    "FP64": "<f8",
    "FP32": "<f4",
    "FP16": "<f2",
    "INT64": "<i8",
    "INT32": "<i4",
    "UINT8": "u1",
}
_MOST = 16  # images in a call, where nobody says


@dataclass(frozen=True)
class Tensors:
    """How images and scores are called and laid out; None where nobody has said.

    Attributes:
        input: name of the images.
        output: name of the scores.
        layout: order of the axes.
        type: of the numbers.
        batched: the first axis counts images.
    """

    input: str | None = None
    output: str | None = None
    layout: Layout | None = None
    type: Numbers | None = None
    batched: bool = True


class Oip(Service):
    """``POST /v2/models/MODEL/infer``."""

    kind = "oip"

    def __init__(
        self,
        address: str,
        about: About,
        tensors: Tensors,
        most: int | None = None,
        binary: str = "auto",
    ) -> None:
        facts = {"tensors": tensors, "output": about.output, "size": about.shape}
        super().__init__(address, about, most or _MOST, **facts)
        self.tensors, self._asked_most = tensors, most
        self._binary: bool | None = {"on": True, "off": False}.get(binary)

    @property
    def settled(self) -> bool:  # type: ignore[override]
        """Whether it is known that the server reads raw bytes, or does not."""
        return self._binary is not None

    def settle(self, worked: bool) -> None:
        """As in `Service`."""
        self._binary = worked

    def unsettle(self) -> None:
        """As in `Service`."""
        self._binary = None

    def prepare(self, get: Get) -> None:
        """Read names, types and shapes, and the most images in a call, where the server says."""
        page = get(self.address)
        if page is None:
            raise Failure("refused", "there is no such model")
        check_status(page)
        metadata = _mapping(page)
        inputs, outputs = (_first(metadata.get(key)) for key in ("inputs", "outputs"))
        self._learn_input(inputs)
        self.tensors = replace(self.tensors, output=self.tensors.output or outputs.get("name"))
        shape = whole_numbers(outputs.get("shape"))
        if self.about.width is None and shape and shape[-1] > 1:
            self.about = replace(self.about, width=shape[-1])
        self._learn_most(get)

    def _learn_input(self, said: dict[str, Any]) -> None:
        """Take over what the server says of its images."""
        known = self.tensors
        kind = known.type or _TYPES.get(str(said.get("datatype")))
        if said and kind is None:
            raise Failure(
                "refused",
                f"its images are {str(said.get('datatype'))[:20]}, and type=float32 or uint8 can "
                f"be sent",
            )
        shape = whole_numbers(said.get("shape"))
        layout = known.layout or find_layout(shape[-3:], "nchw")
        name = known.input or said.get("name")
        self.tensors = replace(known, input=name, type=kind, layout=layout, batched=len(shape) != 3)
        if len(shape) == 4 and shape[0] > 0 and self._asked_most is None:
            self.most_images = shape[0]
        if self.about.shape is None:
            self.about = self.about.of_shape(find_shape(shape[-3:], layout))

    def _learn_most(self, get: Get) -> None:
        """Triton says in its configuration how many images a call may hold; others have none."""
        if self._asked_most is not None:
            return
        if not self.tensors.batched:
            self.most_images = 1
            return
        page = get(f"{self.address}/config")
        most = None
        if page is not None and page.status == 200:
            try:
                most = _mapping(page).get("max_batch_size")
            except Failure:
                return
        if isinstance(most, int) and most > 0:
            self.most_images = most

    def request(self, images: Images) -> Call:
        """As in `Service`."""
        known = self.tensors
        kind = known.type or "float32"
        pixels = laid_out(images, known.layout or "nchw", kind)
        if not known.batched:
            pixels = pixels[0]
        tensor: dict[str, Any] = {
            "name": known.input or "input",
            "shape": list(pixels.shape),
            "datatype": _NAMES[kind],
        }
        body: dict[str, Any] = {"inputs": [tensor]}
        if known.output:
            body["outputs"] = [{"name": known.output}]
        url = f"{self.address}/infer"
        if self._binary is False:
            tensor["data"] = pixels.ravel().tolist()
            return Call("POST", url, JSON | self.headers, as_json(body))
        raw = pixels.astype(_NUMBERS[_NAMES[kind]], copy=False).tobytes()
        tensor["parameters"] = {"binary_data_size": len(raw)}
        head = as_json(body)
        headers = {"Content-Type": "application/octet-stream", _LENGTH: str(len(head))}
        return Call("POST", url, headers | self.headers, head + raw)

    def replies(self, response: Response, count: int) -> list[Reply]:
        """As in `Service`."""
        head, raw = _parts(response)
        if isinstance(head, dict) and head.get("error"):
            raise Failure("image", str(head["error"])[:160])
        scores, version = None, str(head.get("model_version") or "")
        for tensor in head["outputs"]:
            size = (tensor.get("parameters") or {}).get("binary_data_size")  # null from KServe
            piece, raw = (raw[:size], raw[size:]) if size is not None else (b"", raw)
            if self.tensors.output in (None, tensor["name"]):
                scores = _numbers(tensor, piece if size is not None else None)
                break
        if scores is None:
            raise Failure("nonsense", f"its answer has no tensor {self.tensors.output!r}")
        rows = scores.reshape(1, -1) if not self.tensors.batched else scores
        if rows.ndim < 2 or rows[0].size < 2:
            shape = list(scores.shape)
            raise Failure("nonsense", f"its tensor is {shape} and no scores: choose with output=")
        return [Reply(row.reshape(-1), version=version) for row in rows]


def _parts(response: Response) -> tuple[Any, bytes]:
    """The JSON of a response, and the raw tensors behind it."""
    length = response.headers.get(_LENGTH, "")
    if not length.isdecimal():
        return response.json(), b""
    at = int(length[:12])
    return replace(response, content=response.content[:at]).json(), response.content[at:]


def _numbers(tensor: dict[str, Any], raw: bytes | None) -> NDArray[np.float64]:
    """The numbers of a tensor."""
    if raw is None:
        values: NDArray[Any] = np.array(tensor["data"], np.float64)  # nested, or not
    else:
        values = np.frombuffer(raw, _NUMBERS[tensor["datatype"]])
    return values.astype(np.float64).reshape(tensor["shape"])


def _mapping(page: Response) -> dict[str, Any]:
    said = page.json()
    if not isinstance(said, dict):
        raise Failure("nonsense", "what it says of its model is not in the protocol")
    return said


def _first(tensors: Any) -> dict[str, Any]:
    """The first tensor of a list of metadata; nothing if there is none."""
    first = tensors[0] if isinstance(tensors, list) and tensors else {}
    return first if isinstance(first, dict) else {}


def open_oip(name: Name, device: torch.device) -> Unconnected:
    """The service that ``name`` asks for."""
    base, model = split_model(name)
    version = take_version(name)
    tensors = Tensors(
        name.take("input"), name.take("output"), take_layout(name), take_numbers(name)
    )
    binary = name.take_choice("binary", ("auto", "on", "off"), "auto")
    about, most = take_vector(name), take_count(name, "most", None)
    token = name.take("token") or ""
    name.done()
    service = Oip(f"{base}/v2/models/{model}{version}", about, tensors, most, binary)
    service.token = token
    return Unconnected(name.text, service, device)
