"""Images, and what was changed in them: large enough to see, and a zoom on where most is.

An image is ``(c, h, w)`` in [0, 1], a tensor or an array; a picture is ``(h, w, 3)`` bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from brusle.report.style import LIGHT, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Picture = NDArray[np.uint8]
SIDE = 480  # of a picture whose pixels are magnified
_MAGNIFIED = 25  # so many magnified pixels fit side by side: 9 times at 224 x 224, as in the paper
_COVERED = 0.2  # of the image, at most, so that something of it is seen between them
_ZOOM = 4  # so many windows fit side by side
_LEAST_WINDOW = 8


@dataclass(frozen=True)
class Window:
    """A square part of an image: its upper left pixel, and how many pixels are on a side."""

    row: int
    column: int
    side: int


def levels(image: Any) -> Picture:
    """The picture of an image; of unusual numbers of channels the first three, or the first."""
    values: NDArray[np.float32] = np.asarray(image)
    channels = values[:3] if len(values) >= 3 else values[:1].repeat(3, 0)
    bytes_of = (channels * 255).round().astype(np.uint8)
    return np.ascontiguousarray(bytes_of.transpose(1, 2, 0))


def changed_pixels(original: Any, adversarial: Any) -> NDArray[np.bool_]:
    """``(h, w)``: where two images differ."""
    differs: NDArray[np.bool_] = (np.asarray(original) != np.asarray(adversarial)).any(0)
    return differs


def enlarged(picture: Picture, side: int = SIDE) -> Picture:
    """``picture`` with its longer side as given, neither blurred nor stretched."""
    h, w, _ = picture.shape
    scale = side / max(h, w)
    size = (max(1, round(w * scale)), max(1, round(h * scale)))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.NEAREST))


def magnification(changed: NDArray[np.bool_]) -> int:
    """How many pixels wide a changed pixel is drawn: less if there are many of them.

    That is 9 for a few at 224 x 224, as in the paper, and 1 at 32 x 32.
    """
    h, w = changed.shape
    room = math.isqrt(int(_COVERED * h * w / max(1, int(changed.sum()))))
    usual: int = round(max(h, w) / _MAGNIFIED)
    return max(1, min(usual, room))


def magnified(
    original: Any, adversarial: Any, side: int = SIDE, style: Style = LIGHT, times: int = 0
) -> Picture:
    """The changed pixels in their new colours, magnified, on a faint copy of the image.

    A thin frame shows where a new colour equals its surroundings.

    Args:
        original: the image.
        adversarial: the changed one.
        side: of the picture, its longer one.
        style: the colours.
        times: how many pixels wide each is drawn; 0 chooses (`magnification`). The frames of a
            film should share one.
    """
    changed = changed_pixels(original, adversarial)
    panel = enlarged(faint(original, style), side).copy()
    scale = panel.shape[1] / changed.shape[1]
    half = (times or magnification(changed)) * scale / 2
    colours, edge = levels(adversarial), _rgb(style.faint)
    for row, column in np.argwhere(changed):
        top, bottom = _ends((row + 0.5) * scale, half)
        left, right = _ends((column + 0.5) * scale, half)
        panel[top:bottom, left:right] = edge
        line = 1 if min(bottom - top, right - left) > 2 else 0
        panel[top + line : bottom - line, left + line : right - line] = colours[row, column]
    return panel


def faint(image: Any, style: Style = LIGHT) -> Picture:
    """A pale copy of an image in grey, for something else to be drawn on."""
    grey = levels(image).mean(axis=2, keepdims=True)
    back = 30 if style.dark else 245
    return np.repeat(0.25 * grey + 0.75 * back, 3, axis=2).astype(np.uint8)


def densest(changed: NDArray[np.bool_], side: int = 0) -> Window:
    """The window with the most changed pixels; of several such, the one with them in its middle.

    Args:
        changed: ``(h, w)``.
        side: of the window; 0 takes a quarter of the shorter side, and at least 8 pixels.
    """
    shorter = min(changed.shape)
    side = min(side or max(_LEAST_WINDOW, round(shorter / _ZOOM)), shorter)
    places = np.indices(changed.shape) * changed
    count, rows, columns, squares = (
        _sums(values, side) for values in (changed, *places, (places**2).sum(0))
    )
    tops, lefts = np.indices(count.shape)
    middle = (side - 1) / 2
    # the sum of squared distances of the pixels inside from the middle of each window
    y, x = tops + middle, lefts + middle
    spread = squares - 2 * (y * rows + x * columns) + count * (y**2 + x**2)
    spread[count < count.max()] = np.inf
    row, column = np.unravel_index(spread.argmin(), spread.shape)
    return Window(int(row), int(column), side)


def _sums(values: NDArray[Any], side: int) -> NDArray[np.float64]:
    """The sum of values in each window."""
    sums = np.pad(values.astype(np.float64), ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    inside: NDArray[np.float64] = (
        sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    )
    return inside


def zoomed(image: Any, window: Window) -> NDArray[np.float32]:
    """``(c, side, side)``: what is in the window."""
    rows = slice(window.row, window.row + window.side)
    columns = slice(window.column, window.column + window.side)
    return np.asarray(image)[:, rows, columns]


def draw_image(axes: Axes, image: Any, style: Style = LIGHT) -> None:
    """An image as it is."""
    show(axes, levels(image), np.shape(image)[1:], style)


def draw_perturbation(
    axes: Axes, original: Any, adversarial: Any, style: Style = LIGHT, times: int = 0
) -> None:
    """What was changed, as `magnified` draws it."""
    picture = magnified(original, adversarial, SIDE, style, times)
    show(axes, picture, np.shape(original)[1:], style)


def draw_zoom(
    axes: Axes, original: Any, adversarial: Any, window: Window, style: Style = LIGHT
) -> None:
    """The adversarial image in a window, with frames around the changed pixels."""
    part = zoomed(adversarial, window)
    draw_image(axes, part, style)
    mark_pixels(axes, np.argwhere(changed_pixels(zoomed(original, window), part)), style)
    for spine in axes.spines.values():
        spine.set(color=style.accent, linewidth=1.5)


def draw_window(axes: Axes, window: Window, style: Style = LIGHT) -> None:
    """Where a zoom is from, on axes with the whole image."""
    from matplotlib.patches import Rectangle

    corner = (window.column - 0.5, window.row - 0.5)
    for width, ink in ((2.4, style.paper), (1.2, style.accent)):
        axes.add_patch(Rectangle(corner, window.side, window.side, fill=False, lw=width, ec=ink))


def mark_pixels(
    axes: Axes,
    pixels: NDArray[np.int64],
    style: Style = LIGHT,
    colours: NDArray[np.float32] | None = None,
    side: float = 1.0,
) -> None:
    """Frames around pixels, which are seen on light and on dark.

    Args:
        axes: with an image or a map.
        pixels: ``(n, 2)`` rows and columns.
        style: the colours.
        colours: ``(n, 3)`` in [0, 1], of the frames; None takes the paper's.
        side: of a frame, in pixels.
    """
    from matplotlib.collections import PolyCollection

    if not len(pixels):
        return
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * side / 2
    boxes = pixels[:, None, ::-1] + corners
    inner: Any = style.paper if colours is None else colours
    # the outer frame shows where a colour equals its surroundings
    for width, ink in ((1.9, style.ink), (0.9, inner)):
        axes.add_collection(
            PolyCollection(list(boxes), facecolors="none", edgecolors=ink, linewidths=width),
            autolim=False,
        )


def show(axes: Axes, picture: Picture, size: tuple[int, ...], style: Style) -> None:
    """A picture of any resolution on axes whose places are pixels of an image.

    Args:
        axes: whose frame is drawn, without numbers.
        picture: what to show.
        size: height and width of the image.
        style: the colours.
    """
    h, w = size
    # sharp where it is enlarged, and averaged where it is not: no frame gets lost
    axes.imshow(picture, extent=(-0.5, w - 0.5, h - 0.5, -0.5), interpolation="auto")
    axes.set(xticks=(), yticks=())
    for spine in axes.spines.values():
        spine.set(color=style.line, linewidth=0.8)


def _ends(middle: float, half: float) -> tuple[int, int]:
    """From where to where a magnified pixel goes: one pixel of the picture at least."""
    first = max(0, round(middle - half))
    return first, max(first + 1, round(middle + half))


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour[1:])
    return red, green, blue
