"""``brusle serve`` in a process of its own, and what clients of any service send."""

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

COMMAND = (sys.executable, "-c", "from brusle.cli import main; main()", "serve")


@dataclass(frozen=True)
class Served:
    """A server that is ready.

    Attributes:
        process: its process.
        url: where it listens.
        victim: the name by which brusle attacks it.
    """

    process: subprocess.Popen[str]
    url: str
    victim: str


@contextmanager
def served(*options: object, **environment: str) -> Iterator[Served]:
    """Start ``brusle serve`` with ``options``, and wait until it is ready; killed at the end."""
    words = [*COMMAND, "--json", *map(str, options)]
    variables = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    process = subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield Served(process, ready["url"], ready["victim"])
    finally:
        process.kill()
        process.communicate()


def png(image: Tensor) -> bytes:
    """A ``(3, h, w)`` image of 8-bit levels."""
    file = io.BytesIO()
    levels = (image.numpy() * 255).round().astype("uint8").transpose(1, 2, 0)
    Image.fromarray(levels).save(file, "PNG")
    return file.getvalue()


def base64_png(image: Tensor) -> str:
    return base64.b64encode(png(image)).decode()
