"""The panels of an explanation, and how they stand on a sheet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from brusle.explaining.cases import Top
from brusle.report.panels.labels import LINES, Entry, draw_labels
from brusle.report.panels.losses import draw_losses
from brusle.report.panels.maps import Scale, draw_map
from brusle.report.panels.pictures import (
    draw_image,
    draw_perturbation,
    draw_window,
    draw_zoom,
    magnification,
    mark_pixels,
)
from brusle.report.panels.sheet import Draw, Panel, Sheet, numbered
from brusle.report.style import Style
from brusle.report.wording import count
from brusle.text import shortened
from brusle.tracing import Belief, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from brusle.explaining.explanation import Explanation

_IMAGES = ("original", "adversarial")
_MOMENTS = 5  # panels of beliefs, if nothing else is beside them
_ONE_ROW, _TWO_ROWS = 3, 8  # on a sheet of their own, beside both images
_FRAME = 1 / 32  # of the longer side: a frame around one pixel of a large image would be lost
_UNIT_LETTERS = 40
_FEWEST_LINES = 5  # of a list of labels
_FEW_FRAMES, _MOST_FRAMES = 25, 400  # more are drawn smaller, and still more would hide the map
_UNITS = {"theta": "theta, by which pixels are drawn", "effect": "expected effect: above 0 helps"}
_TITLES = {"theta": "theta", "effect": "effects"}
_LOOKS = {
    "gradcam": "GradCAM",
    "attention": "attention, rollout",
    "attention-last": "attention, last layer",
    "occlusion": "fall if covered",
}
_FOUND = {"success": "adversarial", "failed": "best so far"}
_ENDS = {"success": "fooled", "failed": "not fooled", "skipped": "not attacked"}


def sheet_of(explained: Explanation) -> Sheet:
    """All that is known, on one sheet."""
    h, w = explained.original.shape[1:]
    synthetic = list(_synthetic(explained))
    bands = (
        [*_pictures(explained), *_losses(explained)],
        [*_labels(explained), *_looks(explained)],
        [*synthetic, *_beliefs(explained, _MOMENTS - len(synthetic))],
    )
    before, after = map(explained.named, explained.labels)
    arrow = f" \N{RIGHTWARDS ARROW} {after}" if explained.fooled else ""
    return Sheet(
        f"{explained.name}: {before}{arrow}",
        _subtitle(explained),
        [band for band in bands if band],
        explained.notes,
        h / w,
    )


def sheet_of_beliefs(explained: Explanation) -> Sheet:
    """Both images, and what the search believed as it went on."""
    h, w = explained.original.shape[1:]
    images = [panel for panel in _pictures(explained) if panel.name in _IMAGES]
    known = 0 if explained.trace is None else len(explained.trace.beliefs)
    band = [*images, *_beliefs(explained, _TWO_ROWS if known >= _TWO_ROWS else _ONE_ROW)]
    return Sheet(sheet_of(explained).title, _subtitle(explained), [band], (), h / w)


def _subtitle(explained: Explanation) -> str:
    end = _ENDS.get(explained.status, explained.status)
    if explained.queries:
        pixels = count(int(explained.changed.sum()), "pixel")
        end += f" with {pixels} after {count(explained.queries, 'query')}"
    target = "" if explained.target is None else f", target {explained.named(explained.target)}"
    victim = f"; {explained.victim}" if explained.victim else ""
    return f"{explained.attack}{target}: {end}{victim}"


def _pictures(explained: Explanation) -> Iterator[Panel]:
    original, adversarial = explained.original, explained.adversarial
    before, after = (f"seen as {explained.named(label)}" for label in explained.labels)
    truth = explained.named(explained.label)
    if explained.label != explained.labels[0]:
        before += f", though it is {truth}"
    yield Panel("original", "original", _image(original), before)
    changed = explained.changed
    total = int(changed.sum())
    if not total:
        return
    title = _FOUND.get(explained.status, "result")
    yield Panel("adversarial", title, _image(adversarial), after)
    times, window = magnification(changed), explained.window

    def perturbation(axes: Axes, style: Style) -> None:
        draw_perturbation(axes, original, adversarial, style)
        draw_window(axes, window, style)

    large = f"each drawn {times} times as wide; " if times > 1 else ""
    caption = f"{large}the square is enlarged beside"
    yield Panel("perturbation", f"{count(total, 'changed pixel')}", perturbation, caption)
    inside = changed[
        window.row : window.row + window.side, window.column : window.column + window.side
    ]
    yield Panel(
        "zoom",
        "where most of them are",
        lambda axes, style: draw_zoom(axes, original, adversarial, window, style),
        f"{int(inside.sum())} of {total} in {window.side} x {window.side}",
    )


def _image(image: Any) -> Draw:
    return lambda axes, style: draw_image(axes, image, style)


def _losses(explained: Explanation) -> Iterator[Panel]:
    trace = explained.trace
    if trace is not None and len(trace.queries):
        yield Panel(
            "loss",
            f"{explained.loss} over queries",
            lambda axes, style: draw_losses(axes, trace, style, what=explained.loss),
            kind="chart",
        )


def _labels(explained: Explanation) -> Iterator[Panel]:
    if explained.tops is None:
        return
    whole = max([1.0, *(score for top in explained.tops for _, score in top)])
    names, titles = ("labels-before", "labels-after"), ("labels before", "labels after")
    shown = explained.tops if explained.changed.any() else explained.tops[:1]
    signs = "\N{BLACK CIRCLE} true label"
    if explained.target is not None:
        signs += ", \N{BLACK RIGHT-POINTING TRIANGLE} target"
    for name, title, top in zip(names, titles, shown, strict=False):
        draw = partial(_draw_list, _entries(explained, top), whole, _lines(explained))
        yield Panel(name, title, draw, signs)


def _lines(explained: Explanation) -> int:
    """For how many labels there is room beside the images: fewer if these are wide."""
    _, h, w = explained.original.shape
    fitting: int = round(LINES * h / w)
    return max(_FEWEST_LINES, min(LINES, fitting))


def _draw_list(
    entries: Sequence[Entry], whole: float, lines: int, axes: Axes, style: Style
) -> None:
    draw_labels(axes, entries, style, lines=lines, letters=25, whole=whole)


def _entries(explained: Explanation, top: Top) -> list[Entry]:
    """Labels with their scores; the target is named also where it is not in the list."""
    roles: dict[int, Any] = {explained.label: "true"}
    if explained.target is not None:
        roles[explained.target] = "target"
    entries = [Entry(explained.named(label), score, roles.get(label, "")) for label, score in top]
    listed = {label for label, _ in top}
    return entries + [
        Entry(explained.named(label), None, role)
        for label, role in roles.items()
        if label not in listed
    ]


def _looks(explained: Explanation) -> Iterator[Panel]:
    look = explained.look
    if look is None:
        return
    maps = list(look.maps) if explained.changed.any() else [look.maps[0]]
    signed = look.how == "occlusion"
    scale = Scale.around_zero(*maps) if signed else Scale.sequential(*maps)
    names, images = ("look-before", "look-after"), (explained.original, explained.adversarial)
    for name, values, image, label in zip(names, maps, images, explained.labels, strict=False):
        when = name.removeprefix("look-")

        def draw(axes: Axes, style: Style, values: Any = values, image: Any = image) -> None:
            draw_map(axes, values, scale, style, image)
            _mark(axes, style, np.argwhere(explained.changed), explained.original.shape)

        of = explained.named(label if label >= 0 else explained.label)
        what = "" if look.how.startswith("attention") else f" for {of}"
        yield Panel(
            name,
            f"where it looks, {when}",
            draw,
            scale=scale,
            unit=shortened(f"{_LOOKS[look.how]}{what}", _UNIT_LETTERS),
            over_image=True,
        )


def _synthetic(explained: Explanation) -> Iterator[Panel]:
    if explained.synthetic is not None:
        yield Panel(
            "synthetic",
            "synthetic image x'",
            _image(explained.synthetic),
            "the colours that changed pixels get",
        )
    m = explained.dissimilarity
    if m is not None:
        scale = Scale.sequential(m)
        yield Panel(
            "dissimilarity",
            "dissimilarity map M",
            lambda axes, style: draw_map(axes, m, scale, style),
            scale=scale,
            unit="mean difference of x' from the image",
        )


def _beliefs(explained: Explanation, most: int) -> Iterator[Panel]:
    trace = explained.trace
    if trace is None or not trace.beliefs:
        return
    some = moments(trace.beliefs, most)
    scale = Scale.of_beliefs(trace)
    yield from numbered([_belief(explained, trace, belief, scale) for belief in some])


def _belief(explained: Explanation, trace: Trace, belief: Belief, scale: Scale) -> Panel:
    best = trace.improvements[best_by(trace, belief.query)]
    shape = explained.original.shape

    def draw(axes: Axes, style: Style) -> None:
        draw_map(axes, belief.values, scale, style, size=shape[1:])
        places = np.stack([best.positions // shape[2], best.positions % shape[2]], 1)
        _mark(axes, style, places, shape, best.levels)

    what = _TITLES.get(trace.meaning, trace.meaning)
    return Panel(
        trace.meaning if trace.meaning in _TITLES else "belief",  # a stored word is no file name
        f"{what} after {count(belief.query, 'query')}",
        draw,
        scale=scale,
        unit=_UNITS.get(trace.meaning, trace.meaning),
    )


def moments(beliefs: Sequence[Belief], most: int) -> list[Belief]:
    """Some of them, evenly, with the last."""
    if len(beliefs) <= most:
        return list(beliefs)
    chosen = np.linspace(0, len(beliefs) - 1, most).round().astype(int)
    return [beliefs[at] for at in chosen]


def best_by(trace: Trace, query: int) -> int:
    """The number of the improvement that was the best after a query."""
    known = [at for at, one in enumerate(trace.improvements) if one.query <= query]
    return max(known, default=0)


def _mark(
    axes: Axes,
    style: Style,
    places: NDArray[np.int64],
    shape: tuple[int, ...],
    colours: NDArray[np.uint8] | None = None,
) -> None:
    """Frames around pixels, unless they would hide everything."""
    if len(places) > _MOST_FRAMES:
        return
    rgb = None
    if colours is not None:
        channels = colours[:, :3] if colours.shape[1] >= 3 else colours[:, :1].repeat(3, 1)
        rgb = (channels / 255).astype(np.float32)
    side = _FRAME * max(shape[1:]) * min(1.0, math.sqrt(_FEW_FRAMES / max(1, len(places))))
    mark_pixels(axes, places, style, rgb, side=max(1.0, side))
