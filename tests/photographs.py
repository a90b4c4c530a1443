"""Photographs to try commands on: those that Foolbox has for its own examples."""

import csv
import re
from importlib.util import find_spec
from pathlib import Path

from PIL import Image


def make(folder: str, *names: str) -> None:
    """Write photographs under these names, as `imagenet:` reads them, with their labels."""
    package = find_spec("foolbox")
    assert package is not None and package.origin is not None
    files = sorted((Path(package.origin).parent / "data").glob("imagenet_*"))
    place = Path(folder)
    place.mkdir(parents=True)
    with (place / "labels.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "class_index"])
        for name, source in zip(names, files, strict=False):
            found = re.search(r"_(\d+)$", source.stem)
            assert found is not None
            with Image.open(source) as opened:
                opened.convert("RGB").save(place / f"{name}.png")
            table.writerow([f"{name}.png", found[1]])
