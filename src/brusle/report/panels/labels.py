"""Lists of labels with their scores as bars; the true label and the target are marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from brusle.report.plots import plot_text
from brusle.report.style import LIGHT, Style
from brusle.text import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Role = Literal["", "true", "target"]
LINES = 10  # of a list
_SIGNS = {"true": "\N{BLACK CIRCLE} ", "target": "\N{BLACK RIGHT-POINTING TRIANGLE} ", "": ""}
_LARGE = 1000  # a score whose digits behind the point are of no interest
_SHADE = 0.32  # of a colour behind text


@dataclass(frozen=True)
class Entry:
    """A label with its score.

    Attributes:
        name: what it is called.
        score: probability or confidence; None if it is not in the list.
        role: the image's true label, the attack's target, or neither.
        at_most: the score is not known, only that it is not higher.
    """

    name: str
    score: float | None
    role: Role = ""
    at_most: bool = False


def draw_labels(
    axes: Axes,
    entries: Sequence[Entry],
    style: Style = LIGHT,
    *,
    lines: int = LINES,
    letters: int = 27,
    whole: float = 1.0,
) -> None:
    """Labels one below the other, with their scores as bars behind them.

    Entries without a score stand last, as what the list is without.

    Args:
        axes: which get no frame.
        entries: in their order.
        style: the colours.
        lines: for which there is room; no more are drawn.
        letters: of a name, at most.
        whole: the score of a bar as wide as the axes.
    """
    axes.set(xlim=(0, 1), ylim=(lines - 0.5, -0.5))
    axes.axis("off")
    listed = [one for one in entries if one.score is not None]
    absent = [one for one in entries if one.score is None][:lines]
    for line, entry in enumerate(listed[: lines - len(absent)]):
        _draw_entry(axes, line, entry, style, letters, whole)
    for line, entry in enumerate(absent, min(len(listed), lines - len(absent))):
        text = plot_text(shortened(f"without {entry.name}", letters + 8))
        ink = _ink(entry, style)
        axes.text(0.02, line, text, color=ink, size=8, va="center", style="italic")


def _draw_entry(
    axes: Axes, line: int, entry: Entry, style: Style, letters: int, whole: float
) -> None:
    score = entry.score or 0.0
    width = min(1.0, max(0.0, score / whole))
    if entry.role:
        axes.barh(line, width, 0.86, color=_ink(entry, style), alpha=_SHADE, linewidth=0)
    else:
        axes.barh(line, width, 0.86, color=style.card, linewidth=0)
    name = shortened(_SIGNS[entry.role] + entry.name, letters)
    number = f"{score:.3f}" if abs(score) < _LARGE else f"{score:.3g}"
    if entry.at_most:
        number = f"\N{LESS-THAN OR EQUAL TO} {number}"
    for x, text, side in ((0.02, plot_text(name), "left"), (0.98, number, "right")):
        weight = "bold" if entry.role else "normal"
        axes.text(x, line, text, color=style.ink, size=8, va="center", ha=side, weight=weight)


def _ink(entry: Entry, style: Style) -> str:
    return style.aim if entry.role == "target" else style.accent
