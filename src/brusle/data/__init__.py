"""Images to attack: the bundled sample, and images from files."""

from brusle.data.sets import Dataset, known_data, load, read_image, save_image

__all__ = ["Dataset", "known_data", "load", "read_image", "save_image"]
