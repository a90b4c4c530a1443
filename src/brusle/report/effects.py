"""The effects that PixelBandit expected of every pixel: a picture, or numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from brusle.attacks.pixel_bandit.effects import EffectMaps, Moment
from brusle.errors import InputError
from brusle.files import written
from brusle.names import require_ending
from brusle.report.curves import COLOURS
from brusle.report.plots import plot_text, save_figure
from brusle.report.wording import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".npz")  # a picture, or its numbers
_PANEL = 2.5  # inches
_FRAME = 1.5  # pixels, so that their own shade is seen within
_LEAST_FRAME = 1 / 32  # of the longer side: a single pixel of a large image would be lost
_QUANTILE = 0.995
_SHADES = ("#06384e", COLOURS[0], "#ffffff", COLOURS[1], "#6b2417")


def save(maps: EffectMaps, path: str | Path) -> None:
    """Write the numbers as ``.npz``: the fields of `EffectMaps` and, stacked, those of `Moment`."""
    require_ending(path, [".npz"])
    with written(path) as place, place.open("wb") as file:  # given a name, NumPy would add to it
        np.savez_compressed(
            file,
            original=maps.original.numpy(),
            final=maps.final.numpy(),
            colours=maps.colours,
            queries=np.array([moment.queries for moment in maps.moments]),
            effects=np.stack([moment.effects for moment in maps.moments]),
            pixels=np.stack([moment.pixels for moment in maps.moments]),
            paint=np.stack([moment.paint for moment in maps.moments]),
        )


def draw(
    maps: EffectMaps,
    path: str | Path,
    title: str = "",
    before: str = "original",
    after: str = "end of the attack",
) -> None:
    """Draw both images and, for every moment, the largest expected effect of each pixel.

    Args:
        maps: what to draw.
        path: the PNG.
        title: above all.
        before: above the original.
        after: above the other image.
    """
    # matplotlib takes half a second to import, and only this needs it
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    require_ending(path, [".png"])
    if not maps.moments:
        raise InputError("no effects to draw: the image was not attacked")
    _, h, w = maps.original.shape
    columns, tall = 2 + len(maps.moments), min(max(h / w, 0.4), 2.5)
    size = (_PANEL * columns + 0.9, _PANEL * tall + (0.65 if title else 0.35))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, columns)
    for axes, image, text in zip(
        panels, (maps.original, maps.final), (before, after), strict=False
    ):
        axes.imshow(_rgb(image.permute(1, 2, 0).numpy()), interpolation="nearest")
        axes.set_title(plot_text(text), fontsize=11)
    strongest = [moment.strongest for moment in maps.moments]
    # a few extremes would leave the rest pale
    limit = float(np.quantile(np.abs(strongest), _QUANTILE)) or 1.0
    shades = LinearSegmentedColormap.from_list("effects", _SHADES)
    for axes, moment, values in zip(panels[2:], maps.moments, strongest, strict=True):
        drawn = axes.imshow(values, shades, vmin=-limit, vmax=limit, interpolation="nearest")
        _outline(axes, moment)
        axes.set_title(f"after {count(moment.queries, 'query')}", fontsize=11)
    for axes in panels:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#c9ccd2")
    bar = figure.colorbar(drawn, cax=axes.inset_axes((1.05, 0, 0.05, 1)), extend="both")
    bar.set_label("log-odds")
    bar.outline.set_visible(False)
    if title:
        figure.suptitle(plot_text(title), x=0.005, ha="left", fontsize=12)
    save_figure(figure, path, dpi=130)


def _outline(axes: Axes, moment: Moment) -> None:
    """Frames around the pixels of the best mask, in their colours."""
    from matplotlib.patches import Rectangle

    side = max(_FRAME, _LEAST_FRAME * max(moment.strongest.shape))
    for (row, column), paint in zip(moment.pixels, moment.paint, strict=True):
        corner = (column - side / 2, row - side / 2)
        # the dark frame below shows where a colour equals its surroundings
        for width, ink in ((2.4, "#1c1e22"), (1.3, _rgb(paint))):
            axes.add_patch(Rectangle(corner, side, side, fill=False, lw=width, ec=ink))


def _rgb(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """``(..., 3)`` of ``(..., c)``: the first three channels, or the first."""
    return values[..., :3] if values.shape[-1] >= 3 else values[..., :1].repeat(3, -1)
