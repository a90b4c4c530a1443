"""``curve.png``: the charts of a run on one sheet, as the page draws them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as FilePath

from brusle.evaluation.storing.runs import Run
from brusle.report.charts import SIZE, step_chart
from brusle.report.curves import Chart, run_charts
from brusle.report.plots import save_figure
from brusle.report.shapes import INK, Path, Shape, Text, paint
from brusle.text import shortened, shown

_COLUMNS = 2
_MARGIN, _HEADING, _LINE = 20, 24, 17
_MOST = 24  # charts: a taller picture is not looked at
_WIDE, _TITLE_WIDE = 68, 48  # letters of a line below a chart, and of the title above it
_NOTHING = "Nothing has been attacked yet."


def write_curves(run: Run, path: str | FilePath) -> None:
    """Draw the charts of a run and write them to ``path``."""
    draw_charts(run_charts(run), f"{run.victim} on {run.data}", path)


def draw_charts(charts: Sequence[Chart], title: str, path: str | FilePath) -> None:
    """The same of charts that somebody has already."""
    # matplotlib takes half a second to import, and only this needs it
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shapes, (width, height) = sheet(charts, title)
    figure = Figure(figsize=(width / 72, height / 72))
    FigureCanvasAgg(figure)
    paint(figure, shapes)
    save_figure(figure, path, dpi=144)


def sheet(charts: Sequence[Chart], title: str) -> tuple[list[Shape], tuple[float, float]]:
    """All charts below a title, each with its heading, the names of its curves and its caption.

    Returns:
        The shapes, and width and height of the sheet.
    """
    columns = max(1, min(_COLUMNS, len(charts)))
    shapes: list[Shape] = []
    y: float = _MARGIN
    for words in _lines(title, _TITLE_WIDE * columns):
        shapes.append(Text(words, (_MARGIN, y + 10), size=15, ink=INK, bold=True))
        y += _HEADING
    for begin in range(0, min(len(charts), _MOST), _COLUMNS):
        bottoms = []
        for column, chart in enumerate(charts[begin : begin + _COLUMNS]):
            panel, height = _panel(chart)
            shapes += [_moved(one, _MARGIN + column * (SIZE[0] + _MARGIN), y) for one in panel]
            bottoms.append(y + height + _MARGIN)
        y = max(bottoms)
    more = f"{len(charts) - _MOST} more charts are in `brusle report`." if charts[_MOST:] else ""
    if more or not charts:
        shapes.append(Text(more or _NOTHING, (_MARGIN, y + 10)))
        y += _LINE + _MARGIN
    return shapes, (_MARGIN + columns * (SIZE[0] + _MARGIN), y)


def _panel(chart: Chart) -> tuple[list[Shape], float]:
    """A chart with what is said about it, and the height of all."""
    shapes: list[Shape] = [Text(chart.heading, (0, 14), size=13, ink=INK, bold=True)]
    shapes += [_moved(shape, 0, _HEADING) for shape in step_chart(chart)]
    y: float = _HEADING + SIZE[1] + _LINE
    for curve in chart.curves:
        shapes.append(Path("line", [(0, y - 4), (28, y - 4)], curve.colour, curve.dashes))
        for words in _lines(curve.name, _WIDE):
            shapes.append(Text(words, (36, y), ink=INK))
            y += _LINE
    for words in textwrap.wrap(chart.caption, _WIDE + 8):
        shapes.append(Text(words, (0, y)))
        y += _LINE
    return shapes, y


def _lines(name: str, width: int) -> list[str]:
    """A name on as many lines as it needs, one at least; a very long one is cut."""
    return textwrap.wrap(shortened(shown(name), 2 * width), width) or [""]


def _moved(shape: Shape, x: float, y: float) -> Shape:
    if isinstance(shape, Text):
        return replace(shape, at=(shape.at[0] + x, shape.at[1] + y))
    return replace(shape, corners=[(a + x, b + y) for a, b in shape.corners])
