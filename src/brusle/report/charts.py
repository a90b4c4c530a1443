"""Charts as SVG, in colours that the page chooses (light, dark, print)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brusle.evaluation.statistics import Estimate
from brusle.report.curves import COLOURS, Point
from brusle.report.markup import Html, join, tag

_WIDTH, _HEIGHT = 460, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 12, 40
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_DASHES = 4  # classes d0 to d3 of the style sheet, as c0 to c9 are the colours
_MOST_BARS = 40
_ROW, _LONG = 32, 64  # height and most letters of a line of `forest`


@dataclass(frozen=True)
class Series:
    """A curve with its name, the number of its colour, and that of its dashes."""

    name: str
    points: Sequence[Point]
    colour: int
    dashes: int = 0

    @property
    def look(self) -> str:
        """Classes of the style sheet."""
        return f"c{self.colour % len(COLOURS)} d{self.dashes % _DASHES}"


def step_chart(series: Sequence[Series], bands: bool, title: str, axes: tuple[str, str]) -> Html:
    """Shares as step functions.

    Args:
        series: the curves.
        bands: draw their bands.
        title: what they show, for those who cannot see them.
        axes: names of the horizontal and of the vertical axis.
    """
    limit = max(one.points[-1].at for one in series)
    drawn = [_axes(limit, 100, *axes)]
    for one in series:
        if bands:
            drawn.append(tag("path", d=_band(one.points, limit), class_=f"band {one.look}"))
        line = _path(_corners([(point.at, point.value) for point in one.points], limit))
        drawn.append(tag("path", d=line, class_=f"line {one.look}"))
    ends = "; ".join(
        f"{one.name} {100 * one.points[-1].value:.0f} % at {one.points[-1].at}" for one in series
    )
    return _svg(f"{title}. {ends}", drawn)


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
        look = f"c{colour % len(COLOURS)}"
        short = text if len(text) <= _LONG else f"{text[: _LONG - 1]}\N{HORIZONTAL ELLIPSIS}"
        drawn.append(_text(short, _LEFT, y - 8, "start"))
        ends = {"x1": f"{x(estimate.low):.1f}", "x2": f"{x(estimate.high):.1f}"}
        drawn.append(tag("line", **ends, y1=y, y2=y, class_=f"line {look}"))
        drawn.append(tag("circle", cx=f"{x(estimate.value):.1f}", cy=y, r=4, class_=f"bar {look}"))
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
    axes = _axes(end, highest, "changed pixels", "successes")
    return _svg(f"Successes by changed pixels: {said}", [axes, *bars])


def ticks(most: float, steps: int = 5) -> list[int]:
    """Round numbers from 0 to ``most``, with at most so many steps."""
    step = 1
    while most / step > steps:
        # 1, 2, 5, 10, ...
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return list(range(0, int(most) + 1, step))


def _svg(title: str, drawn: Sequence[Html], height: int = _HEIGHT) -> Html:
    box = f"0 0 {_WIDTH} {height}"
    return tag("svg", tag("title", title), *drawn, viewBox=box, role="img", aria_label=title)


def _axes(most_x: float, most_y: float, x_name: str, y_name: str) -> Html:
    drawn: list[Html] = []
    bottom = _TOP + _PLOT_HEIGHT
    for value in ticks(most_y):
        y = f"{_y(value, most_y):.1f}"
        drawn.append(tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="rule"))
        drawn.append(_text(value, _LEFT - 6, _y(value, most_y) + 4, "end"))
    for value in ticks(most_x):
        drawn.append(_text(value, _x(value, most_x), bottom + 16, "middle"))
    drawn.append(_text(x_name, _WIDTH - _RIGHT, _HEIGHT - 6, "end"))
    middle = _TOP + _PLOT_HEIGHT / 2
    turn = f"rotate(-90 11 {middle:.0f})"
    drawn.append(_text(y_name, 11, middle, "middle", turn))
    return tag("g", *drawn, aria_hidden="true")


def _text(text: object, x: float, y: float, anchor: str, turn: str | None = None) -> Html:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, transform=turn)


def _x(value: float, most: float) -> float:
    return _LEFT + _PLOT_WIDTH * value / most


def _y(value: float, most: float) -> float:
    return _TOP + _PLOT_HEIGHT * (1 - value / max(most, 1e-9))


def _corners(points: Sequence[tuple[int, float]], limit: int) -> list[tuple[float, float]]:
    """The corners of a step function; points that would fall on the same spot count once."""
    spots: dict[float, float] = {}
    for queries, share in points:
        spots[round(_x(queries, limit), 1)] = round(_y(share, 1), 1)
    (x, y), *rest = spots.items()
    corners = [(x, y)]
    for x, new in rest:
        corners += [(x, y)] if new == y else [(x, y), (x, new)]
        y = new
    return corners


def _path(corners: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x} {y}" for x, y in corners)


def _band(points: Sequence[Point], limit: int) -> str:
    low, high = (
        _corners([(point.at, getattr(point, end)) for point in points], limit)
        for end in ("low", "high")
    )
    return _path([*high, *reversed(low)]) + "Z"


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def legend(series: Sequence[Series]) -> Html:
    """Names beside their lines."""
    keys = [tag("span", tag("i", class_=one.look), one.name, class_="key") for one in series]
    return tag("p", *(join(key, " ") for key in keys), class_="legend")
