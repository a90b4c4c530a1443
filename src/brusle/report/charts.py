"""Where the lines of charts go; as SVG, in colours that the page chooses (light, dark, print)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from brusle.evaluation.statistics import Estimate
from brusle.report.curves import COLOURS, Chart, Point
from brusle.report.markup import Html, tag
from brusle.report.shapes import Anchor, Path, Shape, Spot, Text, element, look
from brusle.text import shortened, shown

SIZE = _WIDTH, _HEIGHT = 460, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 12, 40
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_MOST_BARS = 40
_ROW, _LONG = 32, 64  # height and most letters of a line of `forest`


def step_chart(chart: Chart) -> list[Shape]:
    """Shares as step functions, in a box of `SIZE`."""
    bands, lines = [], []
    for curve in chart.curves:
        bands.append(Path("band", _band(curve.points, chart.limit), curve.colour))
        middle = [(point.at, point.value) for point in curve.points]
        lines.append(Path("line", _corners(middle, chart.limit), curve.colour, curve.dashes))
    return [*_axes(chart.limit, 100, *chart.axes), *(bands if chart.bands else []), *lines]


def curves_svg(chart: Chart, number: int | None = None) -> Html:
    """The same for a page; ``number`` is that of its `hover_values`."""
    return _svg(chart.words, map(element, step_chart(chart)), data_chart=number)


def hover_values(chart: Chart) -> dict[str, Any]:
    """What a page tells of a chart where somebody points, for JSON.

    Marks are so close that there is one for each pixel; curves have none beyond their ends.
    """
    limit = chart.limit
    marks = sorted({round(limit * at / _PLOT_WIDTH) for at in range(_PLOT_WIDTH + 1)})
    return {
        "what": "pixel" if chart.minimal else "query",
        "brackets": chart.brackets,
        "box": [_LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT],
        "limit": limit,
        "marks": marks,
        "curves": [
            {
                "name": shown(curve.name),
                "look": look(curve.colour, curve.dashes),
                "values": [_value(curve.at(mark)) for mark in marks],
            }
            for curve in chart.curves
        ],
    }


def _value(point: Point | None) -> str | None:
    if point is None:
        return None
    value, low, high = (100 * x for x in (point.value, point.low, point.high))
    return f"{value:.1f} % [{low:.0f}, {high:.0f}]"


def forest(lines: Sequence[tuple[str, Estimate, int]], name: str) -> Html:
    """Estimates with their intervals below each other, around a line at 0.

    Args:
        lines: for each, what it is of, the estimate, and the number of its colour.
        name: what the estimates are.
    """
    most = max(1.0, *(abs(x) for _, e, _ in lines for x in (e.low, e.high)))
    height = len(lines) * _ROW + _BOTTOM + _TOP
    bottom = height - _BOTTOM
    marks = sorted({sign * mark for mark in ticks(most, 3) for sign in (-1, 1)})

    def x(value: float) -> float:
        return _x(value + most, 2 * most)

    drawn: list[Html] = []
    for mark in marks:
        at, kind = f"{x(mark):.1f}", "rule zero" if mark == 0 else "rule"
        drawn.append(tag("line", x1=at, x2=at, y1=_TOP, y2=bottom, class_=kind))
        drawn.append(_text(f"{mark:+d}" if mark else "0", x(mark), bottom + 16, "middle"))
    drawn.append(_text(name, _WIDTH - _RIGHT, height - 6, "end"))
    for row, (text, estimate, colour) in enumerate(lines):
        y = _TOP + (row + 0.7) * _ROW
        ink = f"c{colour % len(COLOURS)}"
        drawn.append(_text(shortened(text, _LONG), _LEFT, y - 8, "start"))
        ends = {"x1": f"{x(estimate.low):.1f}", "x2": f"{x(estimate.high):.1f}"}
        drawn.append(tag("line", **ends, y1=y, y2=y, class_=f"line {ink}"))
        drawn.append(tag("circle", cx=f"{x(estimate.value):.1f}", cy=y, r=4, class_=f"bar {ink}"))
    said = "; ".join(f"{text} {e.value:+.1f} [{e.low:+.1f}, {e.high:+.1f}]" for text, e, _ in lines)
    return _svg(f"{name}: {said}", drawn, height)


def histogram(counts: Mapping[int, int], most: int, colour: int) -> Html:
    """How many successes changed so many pixels, of at most ``most``."""
    step = -(-most // _MOST_BARS)
    bins = [0] * -(-most // step)
    for pixels, count in counts.items():
        bins[min(max(pixels - 1, 0) // step, len(bins) - 1)] += count
    highest = max(bins)
    end = most + 0.5  # a bar stands over its number
    bars = []
    for at, count in enumerate(bins):
        first, last = at * step + 1, min((at + 1) * step, most)
        left, right = _x(first - 0.5, end), _x(last + 0.5, end)
        bars.append(
            tag(
                "rect",
                tag("title", f"{_range(first, last)} pixels: {count}"),
                x=f"{left + 0.5:.1f}",
                y=f"{_y(count, highest):.1f}",
                width=f"{max(right - left - 1, 1):.1f}",
                height=f"{_TOP + _PLOT_HEIGHT - _y(count, highest):.1f}",
                class_=f"bar c{colour % len(COLOURS)}",
            )
        )
    said = ", ".join(f"{count} with {pixels}" for pixels, count in counts.items())
    axes = map(element, _axes(end, highest, "changed pixels", "successes"))
    return _svg(f"Successes by changed pixels: {said}", [*axes, *bars])


def ticks(most: float, steps: int = 5) -> list[int]:
    """Round numbers from 0 to ``most``, with at most so many steps."""
    step = 1
    while most / step > steps:
        # 1, 2, 5, 10, ...
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return list(range(0, int(most) + 1, step))


def _svg(title: str, drawn: Iterable[Html], height: int = _HEIGHT, **more: object) -> Html:
    named: dict[str, object] = {"role": "img", "aria_label": title}
    box = f"0 0 {_WIDTH} {height}"
    return tag("svg", tag("title", title), *drawn, viewBox=box, **named, **more)


def _axes(most_x: float, most_y: float, x_name: str, y_name: str) -> list[Shape]:
    shapes: list[Shape] = []
    bottom = _TOP + _PLOT_HEIGHT
    for value in ticks(most_y):
        y = _y(value, most_y)
        shapes.append(Path("rule", [(_LEFT, y), (_WIDTH - _RIGHT, y)]))
        shapes.append(Text(str(value), (_LEFT - 6, y + 4), "end"))
    for value in ticks(most_x):
        shapes.append(Text(str(value), (_x(value, most_x), bottom + 16), "middle"))
    shapes.append(Text(x_name, (_WIDTH - _RIGHT, _HEIGHT - 6), "end"))
    shapes.append(Text(y_name, (11, _TOP + _PLOT_HEIGHT / 2), "middle", turned=True))
    return shapes


def _text(words: str, x: float, y: float, anchor: Anchor) -> Html:
    return element(Text(words, (x, y), anchor))


def _x(value: float, most: float) -> float:
    return _LEFT + _PLOT_WIDTH * value / most


def _y(value: float, most: float) -> float:
    return _TOP + _PLOT_HEIGHT * (1 - value / max(most, 1e-9))


def _corners(points: Sequence[tuple[int, float]], limit: int) -> list[Spot]:
    """The corners of a step function; points that would fall on the same spot count once."""
    spots: dict[float, float] = {}
    for at, share in points:
        spots[round(_x(at, limit), 1)] = round(_y(share, 1), 1)
    (x, y), *rest = spots.items()
    corners = [(x, y)]
    for x, new in rest:
        corners += [(x, y)] if new == y else [(x, y), (x, new)]
        y = new
    return corners


def _band(points: Sequence[Point], limit: int) -> list[Spot]:
    low = _corners([(point.at, point.low) for point in points], limit)
    high = _corners([(point.at, point.high) for point in points], limit)
    return [*high, *reversed(low)]


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"
