"""What PixelBandit expects of every pixel of one image as it goes on.

The attack is watched from outside (``on_round``) and not changed: it asks what it would have asked,
and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brusle.attacks.pixel_bandit import Bandit, PixelBandit
from brusle.errors import InputError
from brusle.results import AttackResult
from brusle.search import Round


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
