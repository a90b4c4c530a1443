"""The formats in which a server answers, one file each."""

from brusle.serving.formats.base import Format
from brusle.serving.formats.google_vision import GoogleVision
from brusle.serving.formats.oip import OpenInference
from brusle.serving.formats.plain import Plain
from brusle.serving.formats.rekognition import Rekognition
from brusle.serving.formats.tfserving import TensorFlowServing

KINDS: dict[str, type[Format]] = {
    "oip": OpenInference,
    "tfserving": TensorFlowServing,
    "google-vision": GoogleVision,
    "rekognition": Rekognition,
    "json": Plain,
}

__all__ = ["KINDS", "Format"]
