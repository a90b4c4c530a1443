"""What PixelBandit expects of every pixel of one image as it goes on: a picture, or numbers.

The attack is watched from outside and not changed: it asks what it would have asked, and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brusle.attacks.pixel_bandit import Bandit, PixelBandit
from brusle.errors import InputError
from brusle.files import written
from brusle.names import require_ending
from brusle.report.curves import COLOURS
from brusle.report.plots import plot_text, save_figure
from brusle.report.wording import count
from brusle.results import AttackResult
from brusle.search import Round

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".npz")  # a picture, or its numbers
_PANEL = 2.5  # inches
_FRAME = 1.5  # pixels, so that their own shade is seen within
_LEAST_FRAME = 1 / 32  # of the longer side: a single pixel of a large image would be lost
_QUANTILE = 0.995
_SHADES = ("#06384e", COLOURS[0], "#ffffff", COLOURS[1], "#6b2417")


@dataclass(frozen=True)
class Moment:
    """What the attack thought after some queries.

    Attributes:
        queries: how many.
        effects: ``(k, h, w)`` expected effect of every pixel in every corner colour on the
            log-odds, as long as it stands alone; above 0 helps the attack. NaN where the colour is
            the pixel's own.
        pixels: ``(B, 2)`` rows and columns of the best mask.
        paint: ``(B, c)`` its colours.
    """

    queries: int
    effects: NDArray[np.float32]
    pixels: NDArray[np.int64]
    paint: NDArray[np.float32]

    @property
    def strongest(self) -> NDArray[np.float32]:
        """``(h, w)``: the largest expected effect over the colours."""
        values: NDArray[np.float32] = np.nanmax(self.effects, 0)
        return values


@dataclass(frozen=True)
class EffectMaps:
    """One attack on one image.

    Attributes:
        original: ``(c, h, w)`` the image.
        final: ``(c, h, w)`` the adversarial image, or the best one if there is none.
        colours: ``(k, c)`` the corner colours that effects belong to.
        moments: in the order of their queries; the last is the end of the attack. Empty if the
            image was not attacked.
    """

    original: Tensor
    final: Tensor
    colours: NDArray[np.float32]
    moments: tuple[Moment, ...]


def follow(
    attack: object,
    model: Any,
    image: Tensor,
    label: int,
    target: int | None = None,
    *,
    after: Sequence[int] = (10, 50),
    eot: int = 1,
    **options: Any,
) -> tuple[AttackResult, EffectMaps]:
    """Attack one image and keep the expected effects.

    Args:
        attack: a `PixelBandit`; anything else is refused.
        model: as in a call of the attack.
        image: ``(c, h, w)`` floats in [0, 1].
        label: its true label.
        target: the label to reach; None for an untargeted attack.
        after: numbers of queries after which effects are kept, if the attack gets so far. They are
            kept at its end, too.
        eot: as in a call of the attack.
        options: of a call of the attack.

    Returns:
        What the attack returns, for this one image, and the effects.
    """
    bandit = require_bandit(attack)
    journal = _Journal(after, eot)
    targets = None if target is None else [target]
    result = bandit(model, image[None], [label], targets, eot=eot, on_round=journal.note, **options)
    if result.status[0] != "error":  # the last answer is missing, and so is what follows from it
        journal.keep_last()
    colours = np.empty((0, len(image)), np.float32)
    if journal.search is not None:
        colours = journal.search.prior.colours.cpu().numpy()
    moments = tuple(journal.moments.values())
    return result, EffectMaps(result.problems.images[0], result.images[0], colours, moments)


def require_bandit(attack: object) -> PixelBandit:
    """Raise unless ``attack`` is one whose effects can be followed."""
    if not isinstance(attack, PixelBandit):
        raise InputError(
            f"{type(attack).__name__} has no map of expected effects: take pixel-bandit, "
            f"without restarts and not minimal"
        )
    return attack


@dataclass
class _Journal:
    """What is written down about one search."""

    after: Sequence[int]
    eot: int
    moments: dict[int, Moment] = field(default_factory=dict)
    search: Bandit | None = None  # after its last round
    spent: int = 0

    def note(self, seen: Round) -> None:
        assert isinstance(seen.search, Bandit)
        self.search = seen.search
        self.spent = spent = int(seen.step[0] + 1) * self.eot
        if any(spent - self.eot < queries <= spent for queries in self.after):
            self.keep_last()

    def keep_last(self) -> None:
        if self.search is not None:
            moment = _moment(self.search, self.spent)
            self.moments[moment.queries] = moment


def _moment(search: Bandit, spent: int) -> Moment:
    h, w = search.prior.size
    pixel = search.best_pixel[0].cpu()
    return Moment(
        spent,
        search.expected_effects()[0].view(-1, h, w).cpu().numpy(),
        torch.stack([pixel // w, pixel % w], 1).numpy(),
        search.prior.colours[search.best_colour[0]].cpu().numpy(),
    )


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
