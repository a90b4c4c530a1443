"""Images to attack: data sets by name, the bundled sample, and images from files."""

from brusle.data.images import Framing, read_image, save_image
from brusle.data.registry import Data, as_source, known_data, load, risk, source
from brusle.data.sets import Dataset, Source

__all__ = [
    "Data",
    "Dataset",
    "Framing",
    "Source",
    "as_source",
    "known_data",
    "load",
    "read_image",
    "risk",
    "save_image",
    "source",
]
