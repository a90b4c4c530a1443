"""Hugging Face's inference interface: ``huggingface-api:OWNER/MODEL``, or with a URL."""

from __future__ import annotations

import os

import torch

from brusle.errors import InputError
from brusle.names import Name
from brusle.replies import Reply
from brusle.scores import Output
from brusle.victims.remote.authorisation import check_url, is_loopback
from brusle.victims.remote.connecting import Unconnected
from brusle.victims.remote.masking import from_environment
from brusle.victims.remote.options import take_count, take_labels
from brusle.victims.remote.service import (
    JSON,
    About,
    Call,
    Images,
    Response,
    Service,
    as_json,
    base64_png,
    labelled,
)

_HOME = "https://router.huggingface.co/hf-inference/models"
_OUTPUTS: dict[str, Output] = {
    "softmax": "probabilities",
    "sigmoid": "confidences",
    "none": "logits",
}


class HuggingFace(Service):
    """Image classification, one image per call.

    Args:
        address: URL of the model.
        about: what it is.
        most_labels: most labels of an answer.
        function: what the service applies to the model's logits.
    """

    kind = "huggingface-api"

    def __init__(self, address: str, about: About, most_labels: int, function: str) -> None:
        super().__init__(address, about, labels=most_labels, function=function)
        self._parameters = {"top_k": most_labels, "function_to_apply": function}

    def unlock(self) -> None:
        """Read the token; a service on this machine may want none."""
        if os.environ.get("HF_TOKEN") or not is_loopback(self.address):
            token = from_environment("HF_TOKEN", self.kind)
            self.headers = {"Authorization": f"Bearer {token}"}

    def request(self, images: Images) -> Call:
        """As in `Service`."""
        body = {"inputs": base64_png(images[0]), "parameters": self._parameters}
        return Call("POST", self.address, JSON | self.headers, as_json(body))

    def replies(self, response: Response, count: int) -> list[Reply]:
        """As in `Service`."""
        found = response.json()
        if found and isinstance(found[0], list):  # some put a list of one around it
            (found,) = found
        return [labelled([one["label"] for one in found], [one["score"] for one in found])]


def open_huggingface(name: Name, device: torch.device) -> Unconnected:
    """The service that ``name`` asks for."""
    if name.rest.startswith(("http://", "https://")):
        address = check_url(name.rest, name.text)
    elif name.rest.count("/") == 1 and all(name.rest.split("/")):
        address = check_url(f"{_HOME}/{name.rest}", name.text)
    else:
        raise InputError(f"{name.text!r} is not complete: write huggingface-api:OWNER/MODEL")
    function = name.take_choice("apply", tuple(_OUTPUTS), "softmax")
    about = take_labels(name, _OUTPUTS[function])
    most = take_count(name, "max", 10) or 10
    name.done()
    return Unconnected(name.text, HuggingFace(address, about, most, function), device)
