"""The frames of a film: where the panels are, and what is in them after some queries."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from brusle.report.film.story import LINES, Film
from brusle.report.panels import (
    Picture,
    Scale,
    changed_pixels,
    densest,
    draw_image,
    draw_labels,
    draw_losses,
    draw_map,
    draw_perturbation,
    draw_scale,
    draw_window,
    draw_zoom,
    magnification,
    mark_pixels,
)
from brusle.report.panels.pictures import faint
from brusle.report.plots import new_figure, plot_text
from brusle.report.style import Style
from brusle.report.wording import count
from brusle.text import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[int, int, int, int]  # left, top, width and height in pixels

WIDTH, HEIGHT = 1040, 576  # both even, as films in MP4 must be
BIG: Box = (28, 84, 448, 448)  # the image; 32 and 224 pixels fit in whole numbers
CHANGES: Box = (512, 84, 224, 224)
BELIEF: Box = (772, 84, 224, 224)
LOSSES: Box = (812, 372, 204, 136)
_LEGEND: Box = (772, 312, 224, 8)
_LABELS: Box = (512, 368, 224, 164)
_WHOLE: Box = (0, 0, WIDTH, HEIGHT)
_HEAD: Box = (24, 44, 480, 28)
_DPI = 100
_MARKED = 0.04  # of the image, at most: more marks would hide it
_BELIEFS = {
    "theta": "theta: how much it trusts each pixel",
    "effect": "effect that it expects of each pixel",
}


def frames(film: Film, queries: Sequence[int], style: Style) -> Iterator[Picture]:
    """A picture for each of some numbers of queries, which rise."""
    stage = _Stage(film, style)
    for query in queries:
        yield stage.draw(query)


class _Stage:
    """Panels that show one moment after the other; only those that change are drawn anew."""

    def __init__(self, film: Film, style: Style) -> None:
        self._film, self._style = film, style
        final = changed_pixels(film.original, film.image(film.last))
        self._times, self._window = magnification(final), densest(final)
        self._scale = Scale.of_beliefs(film.trace) if film.trace.beliefs else None
        self._big, self._changes, self._side = (
            _Panel(box, style, (2, 2, 2, 2)) for box in (BIG, CHANGES, BELIEF)
        )
        self._labels = _Panel(_LABELS, style)
        self._losses = _Panel(LOSSES, style, (56, 8, 20, 48))
        self._head = _Panel(_HEAD, style)
        self._panels = (
            self._big, self._changes, self._side, self._labels, self._losses, self._head
        )  # fmt: skip
        self._shown: tuple[int, object] = (-1, None)
        self._base = self._headings()

    def draw(self, query: int) -> Picture:
        """What was known after so many queries."""
        film, style = self._film, self._style
        best, belief = film.best(query), film.belief(query)
        before, learned = self._shown
        ends = query >= film.last
        if best != before or ends:
            self._draw_images(query, best if ends else before)
            draw_labels(
                self._labels.cleared(), film.entries(query), style, lines=LINES, letters=20,
                whole=film.whole,
            )  # fmt: skip
        if self._scale is not None and (before < 0 or belief is not learned):
            self._draw_belief(query, self._scale)
        draw_losses(self._losses.cleared(), film.trace, style, until=query, what="")
        self._write_head(query)
        self._shown = (best, belief)
        frame = self._base.copy()
        for panel in self._panels:
            panel.put(frame)
        return frame

    def _draw_images(self, query: int, before: int) -> None:
        """The image, with marks around what is new since the improvement ``before``."""
        film, style = self._film, self._style
        image, axes = film.image(query), self._big.cleared()
        draw_image(axes, image, style)
        if BIG[2] % max(image.shape[1:]) == 0:  # which matplotlib may not see, for rounding
            axes.images[0].set_interpolation("nearest")
        draw_perturbation(self._changes.cleared(), film.original, image, style, self._times)
        if self._scale is None:
            draw_window(self._changes.axes, self._window, style)
            draw_zoom(self._side.cleared(), film.original, image, self._window, style)
        if before >= 0:
            new = np.argwhere(changed_pixels(film.trace.image(before, film.original), image))
            _, h, w = film.original.shape
            if len(new) * self._times**2 <= _MARKED * h * w:
                mark_pixels(axes, new, style, side=self._times)
            axes.set(xlim=(-0.5, w - 0.5), ylim=(h - 0.5, -0.5))  # a mark may go beyond

    def _draw_belief(self, query: int, scale: Scale) -> None:
        film, style, axes = self._film, self._style, self._side.cleared()
        belief = film.belief(query)
        if belief is None:  # nothing was learned yet
            draw_image(axes, faint(film.original, style).transpose(2, 0, 1) / 255, style)
        else:
            draw_map(axes, belief.values, scale, style, film.original)

    def _write_head(self, query: int) -> None:
        film, style, axes = self._film, self._style, self._head.cleared()
        axes.axis("off")
        changed = len(film.trace.improvements[film.best(query)].positions)
        said = f"query {query}: {count(changed, 'pixel')} changed" if query else "the clean image"
        ends = query >= film.last
        look: dict[str, Any] = {"color": style.ink, "size": 11}
        if ends and film.fooled:
            look |= {"color": style.bad, "weight": "bold"}
        text = plot_text(shortened(film.ending if ends else said, 60))
        axes.text(4 / _HEAD[2], 0.36, text, transform=axes.transAxes, **look)

    def _headings(self) -> Picture:
        """What does not change."""
        film, style = self._film, self._style
        sheet = _Panel(_WHOLE, style)
        axes = sheet.cleared()
        axes.axis("off")
        axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
        enlarged = f", {self._times} times as large" if self._times > 1 else ""
        learned = _BELIEFS.get(film.trace.meaning, film.trace.meaning)
        texts = (
            (CHANGES[0], 70, f"changed pixels{enlarged}"),
            (BELIEF[0], 70, learned if self._scale else "where most of them are"),
            (_LABELS[0], 354, "what the victim says"),
            (BELIEF[0], 354, "loss of the search"),
        )
        for left, base, text in texts:
            axes.text(left, base, plot_text(shortened(text, 40)), color=style.ink, size=10)
        title = plot_text(shortened(film.title, 110))
        axes.text(BIG[0], 30, title, color=style.ink, size=13, weight="bold")
        frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        sheet.put(frame)
        if self._scale is not None:
            legend = _Panel(_LEGEND, style, (40, 2, 40, 22))
            draw_scale(legend.cleared(), self._scale, style, over_image=True)
            legend.put(frame)
        return frame


class _Panel:
    """A part of a frame, with axes of its own."""

    def __init__(self, box: Box, style: Style, around: Box = (0, 0, 0, 0)) -> None:
        """Place it.

        Args:
            box: where the axes are.
            style: the colours.
            around: how many pixels there are beside them: left, top, right and bottom.
        """
        left, top, width, height = box
        before, above, behind, below = around
        self._corner = (left - before, top - above)
        wide, high = width + before + behind, height + above + below
        self._figure = new_figure(wide / _DPI, high / _DPI, style.paper)
        self._figure.set_dpi(_DPI)
        place = (before / wide, below / high, width / wide, height / high)
        self.axes = self._figure.add_axes(place)
        self._picture: Picture | None = None

    def cleared(self) -> Axes:
        """The axes, with nothing on them; to make their rules and numbers anew takes long."""
        axes = self.axes
        for container in [*axes.containers]:  # bars, which are patches as well
            container.remove()
        parts: Any = (axes.images, axes.collections, axes.patches, axes.lines, axes.texts)
        for artist in [one for some in parts for one in some]:
            artist.remove()
        self._picture = None
        return axes

    def put(self, frame: Picture) -> None:
        """Paint it where it belongs."""
        if self._picture is None:
            self._picture = self._rendered()
        left, top = self._corner
        h, w, _ = self._picture.shape
        frame[top : top + h, left : left + w] = self._picture

    def _rendered(self) -> Picture:
        canvas: Any = self._figure.canvas
        with warnings.catch_warnings():
            # the font has not all letters of the world; a box stands for what it has not
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            canvas.draw()
        return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()
