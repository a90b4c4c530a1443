"""Panels beside and below each other, with titles above and legends below."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from brusle.report.panels.maps import Scale, draw_scale
from brusle.report.panels.pictures import Picture
from brusle.report.plots import new_figure, picture_of, plot_text
from brusle.report.style import LIGHT, Style
from brusle.text import shortened, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 5
_WIDE, _GAP, _MARGIN = 2.2, 0.3, 0.35  # inches: of a panel, between panels, around all
_HEAD, _TITLE, _FOOT, _LINE = 0.85, 0.3, 0.56, 0.165
_BAR, _ABOVE_BAR = 0.085, 0.09  # of a legend
_CHART = 0.48  # what stands on the left of a chart
_NARROWEST = 5.2  # of a sheet
_PAD = 0.12  # left and right of a panel that is cut out
_LEAST, _MOST = 0.45, 2.2  # of height by width
_LETTERS, _TITLE_LETTERS = 42, 32  # that fit below a panel, and above it


Draw = Callable[["Axes", Style], None]


@dataclass(frozen=True)
class Panel:
    """Something to draw.

    Attributes:
        name: of its file.
        title: above it.
        draw: draws it on axes.
        caption: below it, two lines at most.
        scale: of a map, for its legend.
        unit: what the numbers of the scale are.
        over_image: the map lets an image through.
        kind: a chart has numbers on its left and below.
    """

    name: str
    title: str
    draw: Draw
    caption: str = ""
    scale: Scale | None = None
    unit: str = ""
    over_image: bool = False
    kind: Literal["picture", "chart"] = "picture"


@dataclass(frozen=True)
class Sheet:
    """Panels with something to read above and below.

    Attributes:
        title: in one line.
        subtitle: likewise, less important.
        bands: panels that stand side by side; a long band goes on below.
        notes: below all.
        shape: height by width of the images in it.
    """

    title: str
    subtitle: str
    bands: Sequence[Sequence[Panel]]
    notes: Sequence[str] = ()
    shape: float = 1.0

    def figure(self, style: Style = LIGHT) -> Figure:
        """All panels."""
        width, height = self._size
        place = _Place(new_figure(width, height, style.paper), width, height, style)
        title = shortened(shown(self.title), int(width * 8.5))
        place.text(_MARGIN, 0.33, title, size=14, weight="bold")
        subtitle = shortened(shown(self.subtitle), self._letters)
        place.text(_MARGIN, 0.6, subtitle, size=9, color=style.faint)
        for panel, left, top in self._places():
            place.panel(panel, left, top, self._height)
        top = height - _MARGIN - _LINE * len(self._lines) + 0.1
        for number, line in enumerate(self._lines):
            place.text(_MARGIN, top + number * _LINE, line, size=8, color=style.faint)
        return place.figure

    def pictures(self, style: Style = LIGHT, dpi: int = 150) -> tuple[Picture, dict[str, Picture]]:
        """The sheet, and each of its panels cut out of it, by name."""
        figure = self.figure(style)
        whole = picture_of(figure, dpi)
        parts = {}
        for panel, left, top in self._places():
            rows = slice(round(top * dpi), round((top + self._row) * dpi))
            columns = slice(round((left - _PAD) * dpi), round((left + _WIDE + _PAD) * dpi))
            parts[panel.name] = whole[rows, columns]
        return whole, parts

    def _places(self) -> Iterator[tuple[Panel, float, float]]:
        """Each panel, with its distance from the left and from the top."""
        for number, row in enumerate(self._rows):
            for column, panel in enumerate(row):
                yield panel, _MARGIN + column * (_WIDE + _GAP), _HEAD + number * self._row

    @property
    def _rows(self) -> list[Sequence[Panel]]:
        return [
            band[start : start + _COLUMNS]
            for band in self.bands
            for start in range(0, len(band), _COLUMNS)
        ]

    @property
    def _size(self) -> tuple[float, float]:
        """Width and height."""
        notes = _LINE * len(self._lines) + _MARGIN
        return self._width, _HEAD + len(self._rows) * self._row + notes

    @property
    def _width(self) -> float:
        columns = max(map(len, self._rows), default=1)
        return max(2 * _MARGIN + columns * (_WIDE + _GAP) - _GAP, _NARROWEST)

    @property
    def _letters(self) -> int:
        """That fit in a line of small text."""
        return int(self._width * 15.5)

    @property
    def _lines(self) -> list[str]:
        """The notes."""
        return [line for note in self.notes for line in textwrap.wrap(shown(note), self._letters)]

    @property
    def _row(self) -> float:
        """Height of a row, with what stands above and below its panels."""
        return _TITLE + self._height + _FOOT

    @property
    def _height(self) -> float:
        return _WIDE * min(max(self.shape, _LEAST), _MOST)


@dataclass(frozen=True)
class _Place:
    """Puts things on a figure, in inches from its upper left corner."""

    figure: Figure
    width: float
    height: float
    style: Style

    def panel(self, panel: Panel, left: float, top: float, height: float) -> None:
        style = self.style
        title = shortened(shown(panel.title), _TITLE_LETTERS)
        self.text(left, top + 0.6 * _TITLE, title, size=9.5, color=style.ink)
        inset = _CHART if panel.kind == "chart" else 0.0
        axes = self.axes(left + inset, top + _TITLE, _WIDE - inset, height)
        panel.draw(axes, style)
        below = top + _TITLE + height
        if panel.scale is not None:
            bar = self.axes(left, below + _ABOVE_BAR, _WIDE, _BAR)
            draw_scale(bar, panel.scale, style, panel.unit, panel.over_image)
        elif panel.caption:
            lines = textwrap.wrap(shown(panel.caption), _LETTERS)[:2]
            for number, line in enumerate(lines):
                self.text(left, below + 0.13 + number * _LINE, line, size=8, color=style.faint)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes with their upper left corner at a place."""
        box = (left / self.width, 1 - (top + height) / self.height)
        made: Axes = self.figure.add_axes((*box, width / self.width, height / self.height))
        made.set_facecolor(self.style.paper)
        return made

    def text(
        self,
        left: float,
        top: float,
        text: str,
        size: float,
        color: str = "",
        weight: Literal["normal", "bold"] = "normal",
    ) -> None:
        """A line that begins at a place."""
        self.figure.text(
            left / self.width,
            1 - top / self.height,
            plot_text(text, most=len(text)),
            size=size,
            color=color or self.style.ink,
            weight=weight,
            va="center",
        )


def numbered(panels: Sequence[Panel]) -> Iterator[Panel]:
    """The same panels with names of files that differ: ``theta-1``, ``theta-2``."""
    for number, panel in enumerate(panels, 1):
        yield replace(panel, name=f"{panel.name}-{number}")
