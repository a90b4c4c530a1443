"""A PNG gallery: original, adversarial image, the changed pixels enlarged, and what was seen."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from brusle.evaluation.record import Row, Setting
from brusle.evaluation.storing.rows import rebuild
from brusle.evaluation.storing.runs import Run
from brusle.files import written
from brusle.names import require_ending
from brusle.report.panels.pictures import enlarged, levels, magnified
from brusle.report.wording import class_name, count
from brusle.text import shown

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".pdf")  # what `write_gallery` can write
_PANEL, _GAP, _MARGIN, _TEXT = 192, 8, 24, 44
_INK, _FAINT, _PAPER, _SHADE = (28, 30, 34), (110, 114, 122), (255, 255, 255), (232, 234, 238)


@dataclass(frozen=True)
class Example:
    """One picture of the gallery: images as ``(c, h, w)`` in [0, 1], and what to write below.

    ``name`` is that of the image, ``attack`` what was run, and ``key`` its `row_key`.
    """

    original: Tensor
    adversarial: Tensor
    seen_before: str
    seen_after: str
    note: str
    name: str = ""
    attack: str = ""
    key: str = ""


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
                    row_key(setting, row),
                )
            )
    return examples


def row_key(setting: Setting, row: Row) -> str:
    """Tells a row from all others of its run, now and later."""
    return f"{setting.number}.{row.problem}"


def png(picture: Image.Image) -> str:
    """A picture as PNG in base64."""
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def panels(example: Example) -> tuple[Image.Image, Image.Image, Image.Image]:
    """Original, adversarial image and changed pixels."""
    pictures = (
        enlarged(levels(example.original), _PANEL),
        enlarged(levels(example.adversarial), _PANEL),
        magnified(example.original, example.adversarial, _PANEL),
    )
    original, adversarial, changed = map(Image.fromarray, pictures)
    return original, adversarial, changed


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


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
