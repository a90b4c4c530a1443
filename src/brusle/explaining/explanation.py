"""An explanation: arrays, and how they are drawn, saved and shown in notebooks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from brusle.explaining.cases import Top
from brusle.explaining.drawing import sheet_of
from brusle.files import file_name, write_text, written
from brusle.looking import Look
from brusle.outcomes import HIT, Status
from brusle.report.markup import tag
from brusle.report.notebooks import embedded
from brusle.report.panels.pictures import Window, changed_pixels, densest, levels
from brusle.report.style import style_of
from brusle.report.wording import class_name
from brusle.tracing import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PICTURES = (1, 3, 4)  # channels that a picture can have
_DPI, _NOTEBOOK_DPI = 160, 72


@dataclass(frozen=True)
class Explanation:
    """What happened to one image.

    Attributes:
        name: what the image is called.
        attack: what was run, for people.
        victim: name of the victim; empty if it is not known.
        status: what became of it, as in `brusle.AttackResult`.
        queries: of the attack.
        limit: most queries that it might have had.
        label: the true one.
        target: the one to reach; None if untargeted.
        labels: what the victim says to both images; -1 if unknown.
        classes: names of the classes; empty if they have none.
        original: ``(c, h, w)`` in [0, 1].
        adversarial: the best image that was found.
        tops: the best labels of both images with their scores; None if they are not known.
        trace: what the search found on its way; None if that was not kept.
        loss: what the losses of the trace are.
        synthetic: ``(c, h, w)``: BruSLe's x'; None of other attacks. If a pixel has several
            colours, the one that differs most.
        dissimilarity: ``(h, w)``: its map M; None if it does not use one.
        look: where the victim looks in both images; None if that is not known.
        asked: images that the victim was asked for, beside the attack.
        notes: what a reader of the figure should know.
    """

    name: str
    attack: str
    victim: str
    status: Status
    queries: int
    limit: int
    label: int
    target: int | None
    labels: tuple[int, int]
    classes: tuple[str, ...]
    original: NDArray[np.float32]
    adversarial: NDArray[np.float32]
    tops: tuple[Top, Top] | None = None
    trace: Trace | None = None
    loss: str = "loss"
    synthetic: NDArray[np.float32] | None = None
    dissimilarity: NDArray[np.float32] | None = None
    look: Look | None = None
    asked: int = 0
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> NDArray[np.bool_]:
        """``(h, w)``: where the images differ."""
        return changed_pixels(self.original, self.adversarial)

    @property
    def window(self) -> Window:
        """The part of the image with the most changed pixels."""
        return densest(self.changed)

    @property
    def fooled(self) -> bool:
        """Whether the attack was a success."""
        return self.status == HIT

    @property
    def file_name(self) -> str:
        """What its files are called, without an ending."""
        aim = "" if self.target is None else f"-to-{self.target}"
        return f"{file_name(self.name)}{aim}"

    def named(self, label: int) -> str:
        """What a label is called."""
        return "no label" if label < 0 else class_name(self.classes, label)

    def figure(self, dark: bool = False) -> Figure:
        """All panels on one sheet.

        Args:
            dark: for dark screens.
        """
        return sheet_of(self).figure(style_of(dark))

    def save(self, folder: str | Path, dark: bool = False) -> list[Path]:
        """Write ``NAME.png`` with all panels, and each as ``NAME/PANEL.png``; return the files.

        Original, adversarial and synthetic image have their own pixels; the other panels are drawn.
        If there is a trace, it is written to ``NAME/trace.json``.

        Args:
            folder: where to; it is made if there is none.
            dark: for dark screens.
        """
        sheet = sheet_of(self)
        whole, parts = sheet.pictures(style_of(dark), _DPI)
        place, own = Path(folder), self._own_pixels
        files = {place / f"{self.file_name}.png": whole}
        for name, part in parts.items():
            files[place / self.file_name / f"{name}.png"] = own.get(name, part)
        for path, picture in files.items():
            # made again at any time from what is stored: not worth waiting for the disk
            with written(path, durable=False) as file:
                Image.fromarray(picture).save(file, "PNG")
        if self.trace is not None:
            trace = place / self.file_name / "trace.json"
            write_text(trace, json.dumps(self.trace.as_dict()) + "\n")
            return [*files, trace]
        return list(files)

    @property
    def _own_pixels(self) -> dict[str, NDArray[np.uint8]]:
        """Pictures of images as they are; of unusual numbers of channels, what can be shown."""
        images = {
            "original": self.original,
            "adversarial": self.adversarial,
            "synthetic": self.synthetic,
        }
        return {name: _pixels(image) for name, image in images.items() if image is not None}

    def _repr_html_(self) -> str:
        sheet = sheet_of(self)
        whole, _ = sheet.pictures(dpi=_NOTEBOOK_DPI)
        return tag("div", embedded(Image.fromarray(whole), f"{sheet.title}. {sheet.subtitle}"))


def _pixels(image: NDArray[np.float32]) -> NDArray[np.uint8]:
    if len(image) not in _PICTURES:
        return levels(image)
    exact = (image * 255).round().astype(np.uint8)
    return exact[0] if len(exact) == 1 else np.ascontiguousarray(exact.transpose(1, 2, 0))
