"""The canary of a journal: an image that is asked again, to see whether the victim has changed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brusle.database import Damaged, require_unchanged
from brusle.journal.answers import ReplyWriter, as_stored
from brusle.journal.file import JournalFile
from brusle.replies import Reply

SCHEMA = """
CREATE TABLE canary (
    number INTEGER PRIMARY KEY, moment REAL NOT NULL, sent INTEGER NOT NULL, shape TEXT,
    pixels BLOB, labels BLOB, type TEXT NOT NULL, scores BLOB NOT NULL, error TEXT NOT NULL,
    version TEXT NOT NULL, checksum TEXT NOT NULL
);
"""
_ADD = f"INSERT OR IGNORE INTO canary VALUES ({', '.join('?' * 11)})"


@dataclass(frozen=True)
class Look:
    """One answer to the canary.

    Attributes:
        moment: when (``time.time()``).
        sent: how many images were sent by then.
        reply: the answer.
    """

    moment: float
    sent: int
    reply: Reply


class Canary:
    """The image, and the answers to it in their order.

    Attributes:
        image: ``(1, c, h, w)``; None before the first look.
        looks: all so far.
    """

    def __init__(self, file: JournalFile, writer: ReplyWriter) -> None:
        self._file, self._writer = file, writer
        self.image: Tensor | None = None
        self.looks: list[Look] = []
        with file.explained():
            for row in file.scan("SELECT * FROM canary ORDER BY number"):
                self._take_in(row)

    def add(self, sent: int, reply: Reply, image: Tensor | None = None) -> None:
        """Write one more answer; the first with the image."""
        number, shape, pixels = len(self.looks), None, None
        if image is not None:
            plain = image.detach().to("cpu", torch.float32).contiguous()
            self.image = plain.clone()
            shape, pixels = json.dumps(list(plain.shape)), plain.numpy().astype("<f4").tobytes()
        look = Look(time.time(), sent, as_stored(reply))
        self.looks.append(look)
        row = (number, look.moment, sent, shape, pixels), look.reply
        self._file.wait_for(self._writer.hand_in(_ADD, [row]))

    def _take_in(self, row: Sequence[Any]) -> None:
        require_unchanged([row], "look")
        number, moment, sent, shape, pixels, *columns, _ = row
        first = not self.looks
        if number != len(self.looks) or not isinstance(sent, int) or first != (shape is not None):
            raise Damaged("what it says about its canary cannot be read")
        if first:
            self.image = _image(shape, pixels)
        self.looks.append(Look(moment, sent, self._writer.reply(columns)))


def _image(shape: Any, pixels: Any) -> Tensor:
    try:
        sides = json.loads(shape)
        if len(pixels) != 4 * math.prod(sides) or len(sides) != 4:
            raise ValueError
        image = np.frombuffer(pixels, "<f4").reshape(sides).astype("f4")
    except (ValueError, TypeError) as error:
        raise Damaged("its canary is no image") from error
    return torch.from_numpy(image)
