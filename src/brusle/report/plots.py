"""What all pictures of matplotlib share: names in them are text, and files are whole."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from brusle.files import written
from brusle.text import shortened, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_text(text: str) -> str:
    """A name in a picture: no formula between dollars, and no longer than can be drawn."""
    plain = shortened(shown(text)).replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain  # which legends would leave out


def save_figure(figure: Figure, path: str | Path, dpi: int) -> None:
    """Write a picture as a whole."""
    with written(path) as file, warnings.catch_warnings():
        # the font has not all letters of the world; a box stands for what it has not
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(file, dpi=dpi)
