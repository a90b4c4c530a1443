"""The colours of pictures, on white paper and on dark screens: those of the report's page.

Maps go from the colour of the paper to one that stands out. Lightness alone tells values apart, so
that people who see few colours, and prints in grey, lose nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from brusle.report.curves import COLOURS

if TYPE_CHECKING:
    from matplotlib.colors import Colormap


@dataclass(frozen=True)
class Style:
    """Colours, as ``#rrggbb``.

    Attributes:
        paper: behind everything.
        card: behind a bar.
        ink: of text.
        faint: of text that matters less.
        line: of rules and frames.
        accent: of what is true, and of what was found.
        aim: of the target.
        bad: of what went wrong.
        colours: of curves, by their numbers.
        sequential: of maps from nothing to much.
        diverging: of maps from below 0 to above.
    """

    paper: str
    card: str
    ink: str
    faint: str
    line: str
    accent: str
    aim: str
    bad: str
    colours: tuple[str, ...]
    sequential: tuple[str, ...]
    diverging: tuple[str, ...]

    @property
    def dark(self) -> bool:
        """Whether the paper is."""
        return self.paper == DARK.paper

    def shades(self, diverging: bool) -> Colormap:
        """The colours of a map."""
        from matplotlib.colors import LinearSegmentedColormap

        stops = self.diverging if diverging else self.sequential
        return LinearSegmentedColormap.from_list("shades", stops)


LIGHT = Style(
    paper="#ffffff",
    card="#e8eaee",
    ink="#1c1e22",
    faint="#5d636e",
    line="#dde0e6",
    accent="#0b6e99",
    aim=COLOURS[3],
    bad="#b3261e",
    colours=COLOURS,
    sequential=("#ffffff", "#d3e6cf", "#6fb6b5", "#0b6e99", "#06283e"),
    diverging=("#06384e", COLOURS[0], "#ffffff", COLOURS[1], "#6b2417"),
)
DARK = Style(
    paper="#14161a",
    card="#2b3039",
    ink="#e8eaee",
    faint="#a2a9b5",
    line="#343944",
    accent="#63b7dd",
    aim="#c39bdb",
    bad="#ff8a80",
    colours=(
        "#63b7dd", "#ef8b74", "#93c58a", "#c39bdb", "#e0bb4a", "#aeb4d6", "#e58fb2", "#62c4b8",
        "#cf9c7c", "#b3bac6",
    ),
    sequential=("#14161a", "#0d4660", "#2f8fa8", "#9fd3b4", "#fbf8dc"),
    diverging=("#c9ecff", "#63b7dd", "#14161a", "#ef8b74", "#ffdcd2"),
)  # fmt: skip


def style_of(dark: bool) -> Style:
    """The one for dark screens, or the one for paper."""
    return DARK if dark else LIGHT
