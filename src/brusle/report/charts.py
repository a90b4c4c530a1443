"""Charts as SVG, in colours that the page chooses (light, dark, print)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brusle.evaluation.metrics import Rate
from brusle.report.markup import Html, join, tag

_WIDTH, _HEIGHT = 460, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 12, 40
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
COLOURS = 6  # classes c0 to c5 of the style sheet
_MOST_BARS = 40


@dataclass(frozen=True)
class Series:
    """A curve: its steps as (queries, rate), its colour, and whether it is of a further seed."""

    name: str
    steps: Sequence[tuple[int, Rate]]
    colour: int
    further: bool = False


def success_chart(series: Sequence[Series], bands: bool) -> Html:
    """Success rate over queries; the band is the 95 % interval."""
    limit = max(one.steps[-1][0] for one in series)
    drawn = [_axes(limit, 100, "queries", "fooled, %")]
    for one in series:
        colour = f"c{one.colour % COLOURS}"
        if bands and not one.further:
            drawn.append(tag("path", d=_band(one.steps, limit), class_=f"band {colour}"))
        line = _path(_corners([(q, rate.value) for q, rate in one.steps], limit))
        kind = "further" if one.further else ""
        drawn.append(tag("path", d=line, class_=f"line {colour} {kind}".strip()))
    ends = "; ".join(
        f"{one.name} {100 * one.steps[-1][1].value:.0f} % at {one.steps[-1][0]}" for one in series
    )
    return _svg(f"Success rate over queries. {ends}", drawn)


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
                class_=f"bar c{colour % COLOURS}",
            )
        )
    said = ", ".join(f"{count} with {pixels}" for pixels, count in counts.items())
    axes = _axes(end, highest, "changed pixels", "successes")
    return _svg(f"Successes by changed pixels: {said}", [axes, *bars])


def ticks(most: float) -> list[int]:
    """Round numbers from 0 to ``most``, at most six."""
    step = 1
    while most / step > 5:
        # 1, 2, 5, 10, ...
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return list(range(0, int(most) + 1, step))


def _svg(title: str, drawn: Sequence[Html]) -> Html:
    box = f"0 0 {_WIDTH} {_HEIGHT}"
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


def _band(steps: Sequence[tuple[int, Rate]], limit: int) -> str:
    low, high = (_corners([(q, rate.interval[end]) for q, rate in steps], limit) for end in (0, 1))
    return _path([*high, *reversed(low)]) + "Z"


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def legend(names: Sequence[tuple[str, int]]) -> Html:
    """Names beside their colours."""
    return tag(
        "p",
        *(
            join(tag("span", tag("i", class_=f"c{colour % COLOURS}"), name, class_="key"), " ")
            for name, colour in names
        ),
        class_="legend",
    )
