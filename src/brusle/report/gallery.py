"""A PNG gallery: original, adversarial image, the changed pixels enlarged, and what was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from brusle.evaluation.record import Setting
from brusle.evaluation.storing.rows import rebuild
from brusle.evaluation.storing.runs import Run
from brusle.files import written
from brusle.names import require_ending
from brusle.report.wording import class_name, count
from brusle.text import shown

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".pdf")  # what `write_gallery` can write
_PANEL, _GAP, _MARGIN, _TEXT = 192, 8, 24, 44
_INK, _FAINT, _PAPER, _SHADE = (28, 30, 34), (110, 114, 122), (255, 255, 255), (232, 234, 238)


@dataclass(frozen=True)
class Example:
    """One picture of the gallery: images as ``(c, h, w)`` in [0, 1], and what to write below.

    ``name`` is that of the image, and ``attack`` what was run.
    """

    original: Tensor
    adversarial: Tensor
    seen_before: str
    seen_after: str
    note: str
    name: str = ""
    attack: str = ""


def write_gallery(
    examples: Sequence[Example], path: str | Path, title: str, columns: int = 2
) -> None:
    """Draw ``examples`` in a grid and write it to ``path``, in one of the formats `PICTURES`."""
    require_ending(path, PICTURES)
    width, height = 3 * _PANEL + 2 * _GAP, _PANEL + _TEXT
    rows = -(-len(examples) // columns)
    sheet = Image.new(
        "RGB",
        (_MARGIN + columns * (width + _MARGIN), 56 + rows * (height + 12) + 12),
        _PAPER,
    )
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, 18), shown(title), _INK, font=_font(20))
    for i, example in enumerate(examples):
        left = _MARGIN + (i % columns) * (width + _MARGIN)
        top = 56 + (i // columns) * (height + 12)
        _draw_example(sheet, draw, example, left, top)
    with written(path) as file:
        sheet.save(file)


def run_examples(
    run: Run, per_setting: int = 3, settings: Sequence[Setting] | None = None
) -> list[Example]:
    """A few successes of every setting, of different images where there are enough.

    Args:
        run: the run.
        per_setting: how many of each.
        settings: some settings of the run; None is all.
    """
    examples: list[Example] = []
    shown: Counter[str] = Counter()
    for setting in run.settings if settings is None else settings:
        hits = [row for row in run.stored(setting) if row.status == "success"]
        for _ in range(min(per_setting, len(hits))):
            row = min(hits, key=lambda row: shown[row.image])
            hits.remove(row)
            shown[row.image] += 1
            original = run.originals.take([row.image])[0]
            examples.append(
                Example(
                    original,
                    rebuild(row, original),
                    class_name(run.classes, row.clean_label),
                    class_name(run.classes, row.final_label),
                    f"{setting.goal}: {count(row.pixels, 'pixel')}, {count(row.queries, 'query')}",
                    row.image,
                    setting.name,
                )
            )
    return examples


def perturbation(original: Tensor, adversarial: Tensor) -> Image.Image:
    """The changed pixels in their new colours on a faint copy of the image.

    A pixel of a large image would be lost in the panel, so each is drawn at least 5 wide, with
    a thin frame that shows where a new colour equals its surroundings.
    """
    before, after = _levels(original), _levels(adversarial)
    grey = before.mean(axis=2, keepdims=True)
    faint = np.repeat(0.25 * grey + 0.75 * 245, 3, axis=2).astype(np.uint8)
    panel = _enlarged(faint)
    draw = ImageDraw.Draw(panel)
    scale = panel.width / before.shape[1]
    half = max(scale, 5) / 2
    for y, x in np.argwhere((before != after).any(axis=2)):
        cy, cx = (y + 0.5) * scale, (x + 0.5) * scale
        box = (cx - half, cy - half, cx + half - 1, cy + half - 1)
        draw.rectangle(box, tuple(int(v) for v in after[y, x]), outline=(90, 90, 90))
    return panel


def panels(example: Example) -> tuple[Image.Image, Image.Image, Image.Image]:
    """Original, adversarial image and changed pixels."""
    return (
        _enlarged(_levels(example.original)),
        _enlarged(_levels(example.adversarial)),
        perturbation(example.original, example.adversarial),
    )


def _draw_example(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, example: Example, left: int, top: int
) -> None:
    texts = (
        (example.seen_before, _INK),
        (example.seen_after, (190, 30, 45)),
        (example.note, _FAINT),
    )
    for i, (panel, (text, ink)) in enumerate(zip(panels(example), texts, strict=True)):
        x = left + i * (_PANEL + _GAP)
        sheet.paste(panel, (x, top))
        draw.rectangle((x, top, x + panel.width - 1, top + panel.height - 1), outline=_SHADE)
        draw.text((x + 1, top + _PANEL + 6), shown(text), ink, font=_font(13 if i == 2 else 18))


def _enlarged(levels: NDArray[np.uint8]) -> Image.Image:
    """Fit ``(h, w, 3)`` bytes into a panel without blurring or stretching."""
    h, w, _ = levels.shape
    scale = _PANEL / max(h, w)
    size = (max(1, round(w * scale)), max(1, round(h * scale)))
    return Image.fromarray(levels).resize(size, Image.Resampling.NEAREST)


def _levels(image: Tensor) -> NDArray[np.uint8]:
    """``(h, w, 3)`` bytes; of unusual numbers of channels the first three, or the first."""
    channels = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    levels = (channels.numpy() * 255).round().astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(1, 2, 0))


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
