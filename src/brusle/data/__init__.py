"""Images to attack: data sets by name, the bundled sample, and images from files."""

from brusle.data.images import Framing, read_image, save_image
from brusle.data.sets import Dataset, known_data, load

__all__ = ["Dataset", "Framing", "known_data", "load", "read_image", "save_image"]
