"""Maps of a number for each pixel, over a faint copy of the image, and the scale beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from brusle.report.panels.pictures import Picture, levels, show
from brusle.report.plots import plot_text
from brusle.report.style import LIGHT, Style
from brusle.tracing import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_QUANTILE = 0.995
_IMAGE = 0.22  # of what is seen where a map lies over an image


@dataclass(frozen=True)
class Scale:
    """Which numbers the colours of a map stand for; several maps may share one.

    Attributes:
        low: the lowest; what lies below has its colour.
        high: the highest, likewise.
        diverging: 0 is in the middle, and what is below and above have different colours.
        cut: something lies beyond ``low`` or ``high``.
    """

    low: float
    high: float
    diverging: bool = False
    cut: bool = False

    @classmethod
    def sequential(cls, *maps: NDArray[np.float32], low: float = 0.0) -> Scale:
        """From ``low``, or the lowest if that is lower, to the highest of all maps.

        If there is nothing between, from 0; and if all is 0, to 1.
        """
        low = min([low, *(float(one.min()) for one in maps)])
        most = max([low, *(float(one.max()) for one in maps)])
        if most > low:
            return cls(low, most)
        return cls(min(0.0, low), max(0.0, most)) if low else cls(0.0, 1.0)

    @classmethod
    def around_zero(cls, *maps: NDArray[np.float32]) -> Scale:
        """As far below 0 as above.

        The most extreme half percent, which would leave the rest pale, is cut.
        """
        sizes = np.abs(np.concatenate([one.ravel() for one in maps])) if maps else np.zeros(1)
        limit = float(np.quantile(sizes, _QUANTILE)) or float(sizes.max()) or 1.0
        return cls(-limit, limit, diverging=True, cut=bool(sizes.max() > limit))

    @classmethod
    def of_beliefs(cls, trace: Trace) -> Scale:
        """One for all beliefs of a trace: around 0 for effects, else from lowest to highest."""
        maps = [belief.values for belief in trace.beliefs]
        lowest = min((float(one.min()) for one in maps), default=0.0)
        if trace.meaning == "effect" or lowest < 0:
            return cls.around_zero(*maps)
        return cls.sequential(*maps, low=lowest)

    def shares(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Where values are on the scale, from 0 to 1."""
        placed: NDArray[np.float32] = (values - self.low) / (self.high - self.low)
        return placed.clip(0, 1)


def map_picture(
    values: NDArray[np.float32], scale: Scale, style: Style = LIGHT, image: Any = None
) -> Picture:
    """A map as a picture.

    Args:
        values: ``(h, w)``, or fewer, each for a cell of pixels.
        scale: what its colours stand for.
        style: the colours.
        image: ``(c, h, w)`` that is seen through the map; None is nothing.
    """
    cells = scale.shares(values)
    if image is None:
        return _bytes(style.shades(scale.diverging)(cells)[:, :, :3])
    h, w = np.shape(image)[1:]
    rows, columns = (np.arange(n) * m // n for n, m in zip((h, w), cells.shape, strict=True))
    colours = style.shades(scale.diverging)(cells[rows][:, columns])[:, :, :3]
    grey = levels(image).mean(axis=2, keepdims=True) / 255
    return _bytes((1 - _IMAGE) * colours + _IMAGE * grey)


def draw_map(
    axes: Axes,
    values: NDArray[np.float32],
    scale: Scale,
    style: Style = LIGHT,
    image: Any = None,
    size: tuple[int, ...] | None = None,
) -> None:
    """A map, as `map_picture` makes it.

    Args:
        axes: whose places are pixels of the image.
        values: ``(h, w)``, or fewer, each for a cell of pixels.
        scale: what its colours stand for.
        style: the colours.
        image: ``(c, h, w)`` that is seen through the map; None is nothing.
        size: height and width of the image; None takes those of ``image``, or of the map.
    """
    of_image = values.shape if image is None else np.shape(image)[1:]
    show(axes, map_picture(values, scale, style, image), size or of_image, style)


def draw_scale(
    axes: Axes, scale: Scale, style: Style = LIGHT, label: str = "", over_image: bool = False
) -> None:
    """The legend of maps: a bar with numbers, as wide or as high as the axes are.

    Args:
        axes: wider than high, or higher than wide.
        scale: that of the maps.
        style: the colours.
        label: what the numbers are.
        over_image: the maps let an image through, and the bar shows how that looks on grey.
    """
    lies = axes.bbox.width >= axes.bbox.height
    ramp = np.linspace(0, 1, 256)
    colours = style.shades(scale.diverging)(ramp)[:, :3]
    if over_image:
        colours = (1 - _IMAGE) * colours + _IMAGE * 0.5
    ends = (scale.low, scale.high)
    strip = _bytes(colours)
    if lies:
        axes.imshow(strip[None], extent=(*ends, 0, 1), aspect="auto", interpolation="nearest")
        axes.set(yticks=(), xlim=ends)
        axes.set_xlabel(plot_text(label), color=style.faint, size=8, labelpad=1)
    else:
        axes.imshow(strip[::-1, None], extent=(0, 1, *ends), aspect="auto", interpolation="nearest")
        axes.set(xticks=(), ylim=ends)
        axes.yaxis.tick_right()
        axes.yaxis.set_label_position("right")
        axes.set_ylabel(plot_text(label), color=style.faint, size=8, labelpad=2)
    _number(axes, scale, style, lies)


def _number(axes: Axes, scale: Scale, style: Style, lies: bool) -> None:
    """Numbers at both ends and in the middle; a sign says that there is more beyond."""
    middle = (scale.low + scale.high) / 2
    texts = [f"{value:.2g}" for value in (scale.low, middle, scale.high)]
    if scale.cut:
        texts[0] = f"\N{LESS-THAN OR EQUAL TO} {texts[0]}"
        texts[2] = f"\N{GREATER-THAN OR EQUAL TO} {texts[2]}"
    axis = axes.xaxis if lies else axes.yaxis
    axis.set_ticks([scale.low, middle, scale.high], texts)
    axes.tick_params(length=2, pad=2, labelsize=8, colors=style.faint)
    if lies:  # numbers stay above the bar, and apart from those of bars beside it
        first, *_, last = axes.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
    for spine in axes.spines.values():
        spine.set(color=style.line, linewidth=0.8)


def _bytes(colours: NDArray[Any]) -> Picture:
    picture: Picture = (colours * 255).round().astype(np.uint8)
    return picture
