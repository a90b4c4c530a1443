"""The kinds of services that brusle knows, for the registry of victims.

Each is imported when it is named: httpx is an extra.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch

from brusle.names import Name
from brusle.packages import need
from brusle.registry import Kind

RISK = "sends images to a service"
Opener = Callable[[Name, torch.device], Any]  # what it returns is connected later


def _open(
    module: str, function: str, packages: tuple[str, ...], name: Name, device: torch.device
) -> Any:
    for package in packages:
        need(package, name.text)
    return getattr(import_module(f"brusle.victims.remote.{module}"), function)(name, device)


def _kind(module: str, function: str, form: str, summary: str, *more: str) -> Kind[Opener]:
    opener = partial(_open, module, function, ("httpx", *more))
    return Kind(opener, form, summary, RISK, whole=":?" in form)


KINDS: dict[str, Kind[Opener]] = {
    "oip": _kind(
        "oip",
        "open_oip",
        "oip:http://HOST:PORT/MODEL?scores=logits|probabilities",
        "A model behind the Open Inference Protocol: KServe, Triton, MLServer",
    ),
    "tfserving": _kind(
        "tfserving",
        "open_tfserving",
        "tfserving:http://HOST:PORT/MODEL?scores=logits|probabilities",
        "A model behind TensorFlow Serving's REST interface, or KServe's V1",
    ),
    "rest": _kind(
        "rest",
        "open_rest",
        "rest:FILE.yaml",
        "Any other service over HTTP, by a template of its requests",
        "jsonpath",
    ),
    "google-vision": _kind(
        "google_vision",
        "open_google_vision",
        "google-vision:?max=10&match=name|mid",
        "Google Cloud Vision's labels, or with google-vision:URL those of a service like it",
    ),
    "rekognition": _kind(
        "rekognition",
        "open_rekognition",
        "rekognition:REGION|URL?max=10&least=55",
        "Amazon Rekognition's labels",
        "botocore",
    ),
    "huggingface-api": _kind(
        "huggingface",
        "open_huggingface",
        "huggingface-api:OWNER/MODEL|URL?max=10&apply=softmax|sigmoid|none",
        "A classifier behind Hugging Face's inference interface",
    ),
}
