"""What all pictures of matplotlib share: names in them are text, and files are whole."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from brusle.files import written
from brusle.text import shortened, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float, paper: str = "#ffffff") -> Figure:
    """An empty picture of so many inches, which no window will show."""
    # matplotlib takes half a second to import, and only pictures need it
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor=paper)
    FigureCanvasAgg(figure)
    return figure


def plot_text(text: str, most: int = 80) -> str:
    """A name in a picture: no formula between dollars, and no longer than can be drawn."""
    plain = shortened(shown(text), most).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain  # which legends would leave out


def save_figure(figure: Figure, path: str | Path, dpi: int) -> None:
    """Write a picture as a whole."""
    with written(path) as file, _all_letters():
        figure.savefig(file, dpi=dpi)


def picture_of(figure: Figure, dpi: int) -> NDArray[np.uint8]:
    """A picture as ``(h, w, 3)`` bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(dpi)
    canvas: Any = FigureCanvasAgg(figure)
    with _all_letters():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


@contextmanager
def _all_letters() -> Iterator[None]:
    """The font has not all letters of the world; a box stands for what it has not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield
