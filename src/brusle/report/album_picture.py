"""A picture of single photographs: what a service says before and after, and what that took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brusle.evaluation.paper.photographs import Album, Answer, Photograph, Try
from brusle.report.album import spent
from brusle.report.curves import COLOURS
from brusle.report.panels.labels import LINES, Entry, draw_labels
from brusle.report.panels.pictures import draw_image
from brusle.report.plots import new_figure, plot_text, save_figure
from brusle.report.style import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTHS = (1.6, 2.5, 1.6, 2.5, 3.6)  # inches: photograph, its list, the same of the other, bars
_GAP, _MARGIN, _NAMES = 0.2, 0.35, 0.8  # names of the attacks stand before the bars
_ROW, _CAPTION, _HEAD, _FOOT = 1.6, 0.34, 1.05, 0.5
_HEADINGS = (
    "photograph",
    "what the service says",
    "adversarial image",
    "what it says then",
    "queries until the target is on top",
)
_INK, _FAINT, _SHADE, _TARGET = LIGHT.ink, LIGHT.faint, LIGHT.card, LIGHT.aim


def album_picture(album: Album, title: str, victim: str, path: str | Path) -> None:
    """Draw the photographs of an album, with the first of its pixel budgets."""
    first = album.efforts[0]
    width = 2 * _MARGIN + sum(_WIDTHS) + (len(_WIDTHS) - 1) * _GAP + _NAMES
    height = _HEAD + len(album.photographs) * (_ROW + _CAPTION) + _FOOT
    figure = new_figure(width, height)
    budget = f"{first.pixels} pixels, {first.limit} queries"
    sheet = _Sheet(figure, width, height)
    sheet.text(0, 0.3, plot_text(f"{title}: {budget}"), size=14, weight="bold")
    sheet.text(0, 0.58, _cut(victim, 120), color=_FAINT)
    for column, heading in enumerate(_HEADINGS):
        sheet.text(column, 0.92, heading)
    for number, photograph in enumerate(album.photographs):
        tries = [one for one in photograph.tries if one.pixels == first.pixels]
        last = number == len(album.photographs) - 1
        _draw_row(sheet, _HEAD + number * (_ROW + _CAPTION), photograph, tries, last)
    save_figure(figure, path, dpi=120)


class _Sheet:
    """Places things on a figure, in inches from its upper left corner."""

    def __init__(self, figure: Figure, width: float, height: float) -> None:
        self._figure, self._width, self._height = figure, width, height

    def text(self, column: int, top: float, text: str, **look: Any) -> None:
        """Write at the left edge of a column."""
        style: dict[str, Any] = {"color": _INK, "size": 9, "va": "center"} | look
        self._figure.text(self._left(column) / self._width, 1 - top / self._height, text, **style)

    def axes(self, column: int, top: float) -> Axes:
        """Axes that fill a column of a row."""
        box = (
            self._left(column) / self._width,
            1 - (top + _ROW) / self._height,
            _WIDTHS[column] / self._width,
            _ROW / self._height,
        )
        return self._figure.add_axes(box)

    def _left(self, column: int) -> float:
        names = _NAMES if column == len(_WIDTHS) - 1 else 0.0
        return _MARGIN + sum(_WIDTHS[:column]) + column * _GAP + names


def _draw_row(
    sheet: _Sheet, top: float, photograph: Photograph, tries: Sequence[Try], last: bool
) -> None:
    shown = _shown(tries)
    caption = top + 0.6 * _CAPTION
    top += _CAPTION
    sheet.text(0, caption, _cut(photograph.label, 24), weight="bold")
    sheet.text(1, caption, _cut(photograph.name, 38), color=_FAINT)
    draw_image(sheet.axes(0, top), photograph.image)
    _draw_list(sheet.axes(1, top), photograph.answer, photograph.target)
    if shown is not None:
        said = photograph.target if shown.fooled else "not reached"
        sheet.text(2, caption, _cut(said, 24), weight="bold", color=_TARGET)
        sheet.text(3, caption, f"{shown.attack}, queries: {spent(shown)}", color=_FAINT)
        draw_image(sheet.axes(2, top), shown.image)
        _draw_list(sheet.axes(3, top), shown.answer, photograph.target)
    _draw_bars(sheet.axes(4, top), tries, last)


def _shown(tries: Sequence[Try]) -> Try | None:
    """Whose image is drawn: of the attacks that succeeded the first, or else of the first."""
    return next((one for one in tries if one.fooled), next(iter(tries), None))


def _draw_list(axes: Axes, answer: Answer, target: str) -> None:
    """Labels with their scores; the target is marked, or said to be absent."""
    shown = answer[:LINES]
    entries = [Entry(name, score, "target" if name == target else "") for name, score in shown]
    if target not in dict(shown):
        entries.append(Entry(target, None, "target"))
    draw_labels(axes, entries)


def _draw_bars(axes: Axes, tries: Sequence[Try], last: bool) -> None:
    limit = max(one.limit for one in tries) if tries else 1
    for line, one in enumerate(tries):
        colour = COLOURS[line % len(COLOURS)]
        length = one.queries if one.fooled else limit
        (bar,) = axes.barh(line, length, 0.62, color=colour, edgecolor=colour, linewidth=1)
        if not one.fooled:
            bar.set(facecolor="white", hatch="////")
        axes.text(length + 0.015 * limit, line, spent(one), size=9, va="center", color=_INK)
    axes.set(xlim=(0, 1.16 * limit), ylim=(len(tries) - 0.4, -0.6))
    axes.set_yticks(range(len(tries)), [plot_text(one.attack) for one in tries])
    axes.tick_params(axis="y", length=0, labelsize=9, labelcolor=_INK)
    axes.tick_params(axis="x", labelsize=8, labelcolor=_FAINT, color=_SHADE, labelbottom=last)
    axes.set_xticks([0, limit // 4, limit // 2, 3 * limit // 4, limit])
    axes.grid(axis="x", color=_SHADE)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "left")
        spine.set_color(_FAINT)


def _cut(text: str, letters: int) -> str:
    return plot_text(
        text if len(text) <= letters else f"{text[: letters - 1]}\N{HORIZONTAL ELLIPSIS}"
    )
