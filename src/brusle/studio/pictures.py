"""The images that the page has chosen: read, framed for their victim, and kept for attacks."""

from __future__ import annotations

import base64
import binascii
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from brusle.data import Source
from brusle.data.photos import Photo
from brusle.errors import InputError
from brusle.report.gallery import png
from brusle.report.panels.pictures import levels
from brusle.report.wording import class_name
from brusle.studio.asked import MOST_BYTES, DataImage, FileImage
from brusle.studio.offers import Offer, Offers
from brusle.text import shortened, shown
from brusle.victim import check_shape, traits

KEPT = 8  # images that attacks may still ask for
LARGEST = 2**20  # pixels of an image that is attacked, and drawn in a page
MOST_PIXELS = 2**25  # of a file
AT_ONCE = 24  # thumbnails
_THUMBNAIL = 64  # pixels on a side, at most


@dataclass(frozen=True)
class Picture:
    """An image that can be attacked.

    Attributes:
        name: what it is called.
        pixels: ``(c, h, w)``.
        label: its true label; None is what the victim sees.
        offer: the victim that it is framed for.
        classes: what the data call the classes, for a victim that has no names for them.
        remark: what became of the file, if it is not as it was.
    """

    name: str
    pixels: Tensor
    label: int | None
    offer: Offer
    classes: tuple[str, ...] = ()
    remark: str = ""

    @property
    def names(self) -> list[str]:
        """What labels are called by now, as text; empty if they have no names."""
        said = traits(self.offer.open())
        named = said.vocabulary.names if said.vocabulary else self.classes
        return [shown(name) for name in said.classes or named]

    @property
    def is_whole(self) -> bool:
        """Whether a PNG holds it as it is."""
        rounded = (self.pixels * 255).round() / 255
        return len(self.pixels) in (1, 3) and bool((rounded == self.pixels).all())

    def as_dict(self) -> dict[str, Any]:
        """For the page."""
        label = None if self.label is None else class_name(self.names, self.label)
        return {
            "name": shown(self.name),
            "shape": list(self.pixels.shape),
            "label": self.label,
            "label_name": label,
            "names": self.names,
            "remark": self.remark,
            "levels": raw_levels(self.pixels),
        }


class Pictures:
    """Images by their numbers, the last few of them."""

    def __init__(self, offers: Offers) -> None:
        self._offers = offers
        self._kept: OrderedDict[int, Picture] = OrderedDict()
        self._turn, self._last = threading.Lock(), -1

    def choose(self, asked: DataImage | FileImage) -> tuple[int, Picture]:
        """Read what is asked for; returns its number, too."""
        offer = self._offers.victim(asked.victim)
        if isinstance(asked, DataImage):
            picture = _of_data(self._offers.source(asked.data, asked.victim), asked.row, offer)
        else:
            picture = _of_file(asked, offer)
        _, h, w = picture.pixels.shape
        if h * w > LARGEST:
            raise InputError(
                f"{picture.name} has {h} x {w} pixels, more than a page can follow: give a size"
            )
        with self._turn:
            self._last += 1
            self._kept[self._last] = picture
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return self._last, picture

    def __getitem__(self, number: int) -> Picture:
        picture = self._kept.get(number)
        if picture is None:
            raise InputError("that image is not kept any more: choose it again")
        return picture

    def thumbnails(self, data: int, victim: int, start: int) -> dict[str, Any]:
        """A part of the data, one image of each class in turn."""
        source = self._offers.source(data, victim)
        rows = source.order()[start : start + AT_ONCE]
        images = source.read(rows) if rows else ()
        return {
            "total": len(source),
            "start": start,
            "images": [
                {
                    "row": row,
                    "name": shown(source.names[row]),
                    "label": shown(class_name(source.classes, int(source.labels[row]))),
                    "picture": f"data:image/png;base64,{_thumbnail(image)}",
                }
                for row, image in zip(rows, images, strict=True)
            ],
        }


def raw_levels(image: Tensor) -> str:
    """8-bit levels of an image, row by row and channels last, in base64."""
    raw = (image.permute(1, 2, 0) * 255).round().to(torch.uint8).contiguous()
    return base64.b64encode(raw.numpy().tobytes()).decode()


def png_of(image: Tensor) -> str:
    """An image as a PNG, in base64."""
    return png(Image.fromarray(levels(image)))


def _thumbnail(image: Tensor) -> str:
    picture = Image.fromarray(levels(image))
    picture.thumbnail((_THUMBNAIL, _THUMBNAIL))
    return png(picture)


def _of_data(source: Source, row: int, offer: Offer) -> Picture:
    if row >= len(source):
        raise InputError(f"{source.name} has {len(source)} images: choose one of them")
    image = source.read([row])[0]
    check_shape(image.shape, offer.open(), f"pixels of {source.name}")
    return Picture(source.names[row], image, int(source.labels[row]), offer, source.classes)


def _of_file(asked: FileImage, offer: Offer) -> Picture:
    name = shortened(asked.name.replace("\\", "/").rpartition("/")[2] or "image", 200)
    try:
        content = base64.b64decode(asked.content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{name} did not come whole: choose it again") from error
    if not 0 < len(content) <= MOST_BYTES:
        raise InputError(f"{name} has {len(content)} bytes: at most {MOST_BYTES} are read")
    photo = Photo.decode(content, name, offer.open(), asked.size, MOST_PIXELS)
    size = tuple(photo.pixels.shape[1:])
    remark = ""
    if size != photo.file_size:
        (h, w), (before_h, before_w) = size, photo.file_size
        remark = f"resized or cropped from {before_h} x {before_w} to {h} x {w} pixels"
    return Picture(name, photo.pixels, None, offer, remark=remark)
