"""Drawings of a few shapes, which do not know whether they become SVG or a picture file.

Places are in pixels from the upper left corner. A look is a list of classes of the style sheet:
``c0`` to ``c9`` are the colours, ``d0`` to ``d3`` the dashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from brusle.report.curves import COLOURS
from brusle.report.markup import Html, tag
from brusle.report.plots import plot_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Spot = tuple[float, float]
Anchor = Literal["start", "middle", "end"]
DASHES = ((), (7, 4), (2, 3), (8, 3, 2, 3))
INK, FAINT, RULE = "#1c1e22", "#5d636e", "#dde0e6"
_FONT = 11
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


@dataclass(frozen=True)
class Path:
    """Corners joined by lines: a ``"line"``, a filled ``"band"``, or a ``"rule"`` behind both."""

    kind: Literal["line", "band", "rule"]
    corners: Sequence[Spot]
    colour: int = 0
    dashes: int = 0

    @property
    def look(self) -> str:
        """Classes of the style sheet."""
        return "rule" if self.kind == "rule" else f"{self.kind} {look(self.colour, self.dashes)}"


@dataclass(frozen=True)
class Text:
    """Words that begin, end or have their middle at a spot; ``turned`` they go upwards."""

    words: str
    at: Spot
    anchor: Anchor = "start"
    turned: bool = False
    size: int = _FONT
    ink: str = FAINT
    bold: bool = False


Shape = Path | Text


def look(colour: int, dashes: int) -> str:
    """Classes of the style sheet for a colour and dashes."""
    return f"c{colour % len(COLOURS)} d{dashes % len(DASHES)}"


def element(shape: Shape) -> Html:
    """A shape as an element of SVG; the style sheet of the page says how it looks."""
    if isinstance(shape, Path):
        end = "Z" if shape.kind == "band" else ""
        corners = "L".join(f"{x:.1f} {y:.1f}" for x, y in shape.corners)
        return tag("path", d=f"M{corners}{end}", class_=shape.look)
    x, y = (f"{place:.1f}" for place in shape.at)
    turn = f"rotate(-90 {x} {y})" if shape.turned else None
    return tag("text", shape.words, x=x, y=y, text_anchor=shape.anchor, transform=turn)


def paint(figure: Figure, shapes: Sequence[Shape]) -> None:
    """The same on a figure of matplotlib that has 72 dots to the inch."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline
    from matplotlib.transforms import Affine2D

    width, height = 72 * figure.get_size_inches()
    places = Affine2D().scale(1 / width, -1 / height).translate(0, 1) + figure.transFigure
    for shape in shapes:
        if isinstance(shape, Path):
            outline = Outline(list(shape.corners))
            figure.add_artist(PathPatch(outline, transform=places, **_style(shape)))
        else:
            figure.text(
                *shape.at,
                plot_text(shape.words),
                transform=places,
                ha=_ANCHORS[shape.anchor],
                rotation=90 if shape.turned else 0,
                rotation_mode="anchor",
                fontsize=shape.size,
                color=shape.ink,
                weight="bold" if shape.bold else "normal",
            )


def _style(path: Path) -> dict[str, object]:
    if path.kind == "rule":
        return {"fill": False, "ec": RULE, "lw": 1}
    colour = COLOURS[path.colour % len(COLOURS)]
    if path.kind == "band":
        return {"fc": colour, "alpha": 0.13, "lw": 0}
    dashes = DASHES[path.dashes % len(DASHES)]
    return {"fill": False, "ec": colour, "lw": 2, "ls": (0, dashes) if dashes else "-"}
