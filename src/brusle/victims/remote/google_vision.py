"""Google Cloud Vision's label detection: ``google-vision:``, or ``google-vision:URL``.

One image per call: the service counts and charges images, and an error inside an answer is about
one. Its scores are confidences that do not sum to one, of 10 labels unless told otherwise.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from brusle.names import Name
from brusle.replies import Reply
from brusle.victims.remote.authorisation import check_url, is_loopback
from brusle.victims.remote.connecting import Unconnected
from brusle.victims.remote.masking import from_environment, line
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
    of_code,
)

_HOME = "https://vision.googleapis.com"
_CODES = {  # of google.rpc
    4: "DEADLINE_EXCEEDED",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    10: "ABORTED",
    12: "UNIMPLEMENTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    16: "UNAUTHENTICATED",
}


class GoogleVision(Service):
    """``POST /v1/images:annotate`` with the feature ``LABEL_DETECTION``."""

    kind = "google-vision"

    def __init__(self, address: str, about: About, most_labels: int, by_mid: bool) -> None:
        super().__init__(address, about, labels=most_labels, mid=by_mid)
        self._labels, self._by_mid = most_labels, by_mid

    def unlock(self) -> None:
        """Read the token or the key; a service on this machine may want none."""
        if os.environ.get("GOOGLE_ACCESS_TOKEN"):
            token = from_environment("GOOGLE_ACCESS_TOKEN", self.kind)
            self.headers = {"Authorization": f"Bearer {token}"}
        elif os.environ.get("GOOGLE_API_KEY") or not is_loopback(self.address):
            key = from_environment("GOOGLE_API_KEY", self.kind)
            self.headers = {"X-Goog-Api-Key": key}

    def request(self, images: Images) -> Call:
        """As in `Service`."""
        features = [{"type": "LABEL_DETECTION", "maxResults": self._labels}]
        body = {
            "requests": [
                {"image": {"content": base64_png(image)}, "features": features} for image in images
            ]
        }
        url = f"{self.address}/v1/images:annotate"
        return Call("POST", url, JSON | self.headers, as_json(body))

    def replies(self, response: Response, count: int) -> list[Reply]:
        """As in `Service`."""
        return [self._reply(answer) for answer in response.json()["responses"]]

    def _reply(self, answer: dict[str, Any]) -> Reply:
        error = answer.get("error")
        if error:
            code = _CODES.get(error.get("code"), error.get("status"))
            raise of_code(code, line(str(error.get("message", ""))))
        found = answer.get("labelAnnotations", [])
        names = [label["description"] for label in found]
        scores = [label["score"] for label in found]
        if self._by_mid:
            return labelled([label["mid"] for label in found], scores, names)
        return labelled(names, scores)


def open_google_vision(name: Name, device: torch.device) -> Unconnected:
    """The service that ``name`` asks for."""
    about = take_labels(name, "confidences")
    most = take_count(name, "max", 10) or 10
    by_mid = name.take_choice("match", ("name", "mid"), "name") == "mid"
    name.done()
    address = check_url(name.rest or _HOME, name.text)
    return Unconnected(name.text, GoogleVision(address, about, most, by_mid), device)
