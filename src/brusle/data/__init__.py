"""Images to attack: data sets by name, the bundled sample, and images from files."""

from brusle.data.images import Framing, read_image, save_image
from brusle.data.registry import known_data, load, source
from brusle.data.sets import Dataset, Source

__all__ = [
    "Dataset",
    "Framing",
    "Source",
    "known_data",
    "load",
    "read_image",
    "save_image",
    "source",
]
