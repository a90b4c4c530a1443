"""One image file of any size, brought to what a victim takes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from torch import Tensor

from brusle.data.images import decode_picture, fit_for, frame, open_picture
from brusle.victim import Victim, check_shape, traits


@dataclass(frozen=True)
class Photo:
    """An image file, framed for a victim.

    Attributes:
        name: what it is called.
        pixels: ``(c, h, w)`` float32 in [0, 1].
        file_size: height and width of the file.
    """

    name: str
    pixels: Tensor
    file_size: tuple[int, int]

    @classmethod
    def read(cls, path: Path, victim: Victim, size: int | None = None) -> Photo:
        """The photo in a file.

        Args:
            path: the file.
            victim: what it is framed for.
            size: side of a square to frame it to, whatever the victim says.
        """
        return cls._framed(lambda channels: open_picture(path, channels), str(path), victim, size)

    @classmethod
    def decode(
        cls,
        content: bytes,
        name: str,
        victim: Victim,
        size: int | None = None,
        most: int | None = None,
    ) -> Photo:
        """The photo in the bytes of a file.

        Args:
            content: the bytes.
            name: what the file is called.
            victim: as in `read`; so is ``size``.
            size: side of a square.
            most: most pixels that it may have.
        """

        def opened(channels: int) -> Image.Image:
            return decode_picture(io.BytesIO(content), name, channels, most)

        return cls._framed(opened, name, victim, size)

    @classmethod
    def _framed(
        cls, opened: Callable[[int], Image.Image], name: str, victim: Victim, size: int | None
    ) -> Photo:
        framing, shape = fit_for(traits(victim), size)
        file = opened(shape[0] if shape else 3)
        pixels = frame(file, name, shape, framing)
        check_shape(pixels.shape, victim, f"pixels of {name}")
        return cls(name, pixels, (file.height, file.width))
