"""Amazon Rekognition's label detection: ``rekognition:REGION``, or ``rekognition:URL``.

Confidences are 0 to 100 there, and 0 to 1 here. Requests are signed by botocore, with credentials
from where it finds them; it sends nothing itself.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

import torch

from brusle.errors import InputError
from brusle.names import Name
from brusle.packages import need
from brusle.replies import Reply
from brusle.victims.remote.authorisation import check_url, is_loopback
from brusle.victims.remote.connecting import Unconnected
from brusle.victims.remote.masking import keep_secret
from brusle.victims.remote.options import take_count, take_labels
from brusle.victims.remote.service import (
    About,
    Call,
    Failure,
    Get,
    Images,
    Response,
    Service,
    as_json,
    base64_png,
    labelled,
    spoken,
)

_HEADERS = {
    "Content-Type": "application/x-amz-json-1.1",
    "X-Amz-Target": "RekognitionService.DetectLabels",
}
_SMALLEST = 80  # pixels of a side
_BUSY = re.compile(r"Throttl|ThroughputExceeded|LimitExceeded|Unavailable|InternalServer")
_REFUSED = re.compile(
    r"AccessDenied|UnrecognizedClient|Signature|ExpiredToken|InvalidToken|MissingAuth|Unknown"
    r"|OptInRequired|Incomplete"
)


class Rekognition(Service):
    """``DetectLabels``, one image per call.

    Args:
        address: URL of the service.
        about: what it is.
        region: for which requests are signed.
        most_labels: most labels of an answer.
        least: lowest confidence of a label, from 0 to 100.
    """

    kind = "rekognition"
    signs = True

    def __init__(
        self, address: str, about: About, region: str, most_labels: int, least: float
    ) -> None:
        super().__init__(address, about, labels=most_labels, least=least)
        self._region = region
        self._asked = {"MaxLabels": most_labels, "MinConfidence": least}
        self._credentials: Any = None

    def prepare(self, get: Get) -> None:
        """Find the credentials; a service on this machine may want none."""
        named = os.environ.get("AWS_ACCESS_KEY_ID") or os.environ.get("AWS_PROFILE")
        if named or not is_loopback(self.address):
            self._credentials = _find_credentials()

    def request(self, images: Images) -> Call:
        """As in `Service`."""
        height, width = images.shape[2:]
        if min(height, width) < _SMALLEST:
            raise InputError(
                f"Rekognition takes images from {_SMALLEST} x {_SMALLEST} pixels, and these are "
                f"{height} x {width}: give larger ones"
            )
        body = {"Image": {"Bytes": base64_png(images[0])}, **self._asked}
        return Call("POST", f"{self.address}/", _HEADERS, as_json(body))

    def signed(self, call: Call) -> Call:
        """As in `Service`."""
        if self._credentials is None:
            return call
        keys = self._credentials.get_frozen_credentials()
        for secret in filter(None, keys):
            keep_secret(secret)
        requests, auth = need("botocore.awsrequest", self.kind), need("botocore.auth", self.kind)
        request = requests.AWSRequest(call.method, call.url, dict(call.headers), call.content)
        auth.SigV4Auth(keys, self.kind, self._region).add_auth(request)
        return replace(call, headers=dict(request.headers))

    def judge(self, response: Response) -> None:
        """Errors are known by their names: also a service that is busy says 400."""
        if response.status == 400:
            try:
                name = str(response.json()["__type"]).rpartition("#")[2]
            except (Failure, KeyError, TypeError):
                name = ""
            reason = f"HTTP 400 {name[:60]}: {spoken(response)}"
            busy, refused = _BUSY.search(name), _REFUSED.search(name)
            raise Failure("busy" if busy else "refused" if refused else "image", reason)
        super().judge(response)

    def replies(self, response: Response, count: int) -> list[Reply]:
        """As in `Service`."""
        said = response.json()
        names = [label["Name"] for label in said["Labels"]]
        scores = [label["Confidence"] / 100 for label in said["Labels"]]
        return [labelled(names, scores, version=str(said.get("LabelModelVersion", "")))]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_credentials": self._credentials is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        credentials = _find_credentials() if state["_credentials"] else None
        self.__dict__.update(state, _credentials=credentials)


def _find_credentials() -> Any:
    found = need("botocore.session", Rekognition.kind).get_session().get_credentials()
    if found is None:
        raise InputError(
            f"{Rekognition.kind} needs credentials of AWS: set AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    return found


def open_rekognition(name: Name, device: torch.device) -> Unconnected:
    """The service that ``name`` asks for."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    if name.rest.startswith(("http://", "https://")):
        address = check_url(name.rest, name.text)
    elif re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", name.rest):
        region = name.rest
        address = f"https://rekognition.{region}.amazonaws.com"
    else:
        raise InputError(f"{name.text!r} names no region: write it as rekognition:eu-west-1")
    about = take_labels(name, "confidences")
    most = take_count(name, "max", 10) or 10
    least = name.take_numbers("least") or (55.0,)
    name.done()
    if len(least) != 1 or not 0 <= least[0] <= 100:
        raise InputError(f"least of {name.text!r} is a confidence from 0 to 100")
    return Unconnected(name.text, Rekognition(address, about, region, most, least[0]), device)
