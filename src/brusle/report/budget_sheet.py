"""Adversarial images of several budgets beside each other, as papers show them.

A column is a setting of a run, and two rows are an image: adversarial above, and below it the
changed pixels, magnified, in their new colours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from brusle.errors import DataError, InputError
from brusle.evaluation.record import Row, Setting
from brusle.evaluation.storing.choosing import Chosen, listed_settings
from brusle.evaluation.storing.rows import rebuild
from brusle.evaluation.storing.runs import Run
from brusle.names import require_ending
from brusle.report.families import families
from brusle.report.panels import draw_image, draw_perturbation, magnification
from brusle.report.panels.pictures import changed_pixels
from brusle.report.plots import new_figure, plot_text, save_figure
from brusle.report.style import LIGHT, Style
from brusle.report.wording import class_name, count
from brusle.text import shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 6  # columns, and images: more would be too small to see
_PANEL, _GAP, _MARGIN = 1.9, 0.12, 0.3  # inches
_HEAD, _CAPTION = 0.85, 0.52
_LETTERS = 26


def write_budgets(
    run: Run, chosen: Sequence[Chosen], path: str | Path, style: Style = LIGHT
) -> None:
    """Draw `budget_sheet` to a PNG."""
    require_ending(path, [".png"])
    save_figure(budget_sheet(run, chosen, style), path, dpi=120)


def budget_sheet(run: Run, chosen: Sequence[Chosen], style: Style = LIGHT) -> Figure:
    """Images of a run below each other, each with all its settings.

    Args:
        run: the run.
        chosen: which attacks on which images; an image has at most one for each setting.
        style: the colours.
    """
    settings = _columns([one.setting for one in chosen])
    lines = _lines(chosen, settings)
    width = 2 * _MARGIN + (1 + len(settings)) * (_PANEL + _GAP) - _GAP
    _, h, w = run.shape
    tall = _PANEL * min(max(h / w, 0.4), 2.5)
    each = _CAPTION + 2 * tall + 2 * _GAP
    sheet = _Sheet(new_figure(width, _HEAD + len(lines) * each + _MARGIN / 2, style.paper), tall)
    sheet.write(0, 0.3, f"{run.victim} on {run.data}", style, size=13, weight="bold")
    for column, setting in enumerate(settings, 1):
        sheet.write(column, _HEAD - 0.18, _heading(setting, settings), style, weight="bold")
    originals = run.originals.take([rows[0].row.image for rows in lines])
    for line, (found, original) in enumerate(zip(lines, originals, strict=True)):
        top = _HEAD + line * each
        _draw_line(sheet, top, found, settings, original, run.classes, style)
    return sheet.figure


@dataclass(frozen=True)
class _Sheet:
    """Places things, in inches from the upper left corner of a figure."""

    figure: Figure
    tall: float

    def write(self, column: int, top: float, text: str, style: Style, **look: Any) -> None:
        width, height = self.figure.get_size_inches()
        usual: dict[str, Any] = {"color": style.ink, "size": 9, "va": "center"}
        x, y = self._left(column) / width, 1 - top / height
        self.figure.text(x, y, plot_text(text), **usual | look)

    def axes(self, column: int, top: float) -> Any:
        width, height = self.figure.get_size_inches()
        left, bottom = self._left(column) / width, 1 - (top + self.tall) / height
        return self.figure.add_axes((left, bottom, _PANEL / width, self.tall / height))

    def _left(self, column: int) -> float:
        return _MARGIN + column * (_PANEL + _GAP)


def _draw_line(
    sheet: _Sheet,
    top: float,
    found: Sequence[Chosen],
    settings: Sequence[Setting],
    original: Tensor,
    names: Sequence[str],
    style: Style,
) -> None:
    first, below = found[0].row, top + _CAPTION
    seen = class_name(names, first.clean_label)
    sheet.write(0, top + 0.16, shortened(seen, _LETTERS), style, weight="bold")
    sheet.write(0, top + 0.36, shortened(first.image, _LETTERS), style, color=style.faint, size=8)
    draw_image(sheet.axes(0, below), original, style)
    images = {one.setting.number: rebuild(one.row, original) for one in found}
    # all of a line are magnified alike, so that more pixels cover more
    times = min(magnification(changed_pixels(original, image)) for image in images.values())
    for one in found:
        column, image = settings.index(one.setting) + 1, images[one.setting.number]
        ink = style.ink if one.row.status == "success" else style.faint
        sheet.write(
            column, top + 0.16, shortened(_outcome(one.row, names), _LETTERS), style, color=ink
        )
        effort = f"{count(one.row.pixels, 'pixel')}, {count(one.row.queries, 'query')}"
        sheet.write(column, top + 0.36, effort, style, color=style.faint, size=8)
        draw_image(sheet.axes(column, below), image, style)
        lower = sheet.axes(column, below + sheet.tall + _GAP)
        draw_perturbation(lower, original, image, style, times)


def _outcome(row: Row, names: Sequence[str]) -> str:
    """What the victim sees, and in words what else happened."""
    seen = class_name(names, row.final_label)
    if row.status == "success":
        return f"\N{RIGHTWARDS ARROW} {seen}"
    return "withstood, best try" if row.status == "failed" else row.status


def _heading(setting: Setting, settings: Sequence[Setting]) -> str:
    """What tells a column from the others."""
    several = len({one.name for one in settings}) > 1
    goals = len({one.goal for one in settings}) > 1
    parts = [setting.name if several else "", setting.goal if goals else ""]
    return ", ".join([*filter(None, parts), count(setting.pixels, "pixel")])


def _columns(settings: Sequence[Setting]) -> list[Setting]:
    """The settings of a sheet, from few pixels to many; of several seeds the first."""
    different = list({one.number: one for one in settings}.values())
    found = [family.first for family in families(different)]
    if len(found) > MOST:
        raise InputError(
            f"a sheet has room for {MOST} settings, and these are {len(found)}: choose with "
            f"--attack or --setting; there are {listed_settings(found)}"
        )
    return sorted(found, key=lambda one: (one.name, one.goal, one.pixels))


def _lines(chosen: Sequence[Chosen], settings: Sequence[Setting]) -> list[list[Chosen]]:
    """For each image its attacks; where there are several targets, an image has several lines."""
    found: dict[tuple[str, int], list[Chosen]] = {}
    known: Counter[tuple[str, int]] = Counter()
    for one in chosen:
        if one.setting in settings and one.row.queries:
            place = (one.row.image, one.setting.number)
            found.setdefault((one.row.image, known[place]), []).append(one)
            known[place] += 1
    if not found:
        raise DataError("no image was attacked: there is nothing to draw")
    if len(found) > MOST:
        raise InputError(f"a sheet has room for {MOST} images: choose some of {len(found)}")
    return list(found.values())
