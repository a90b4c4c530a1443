"""Pointwise (Schott, Rauber, Bethge, Brendel, ICLR 2019): set pixels back as long as it works.

The search begins at an adversarial image, goes through the pixels that differ from the original
in random order and sets each back to the original; what stays adversarial is kept. Passes are
repeated until one brings nothing: then no single pixel can be set back any more. Only labels are
needed.

Where implementations differ, and what is done here:

* The authors' (in Foolbox) sets single values back, one channel of a pixel at a time; that is
  ``unit="value"``. What counts here are pixels, and ``unit="pixel"`` (default) sets back whole
  ones.
* Foolbox then moves the values that are left towards the original, by bisection. That shortens
  the l_2 distance and changes no count of pixels, so it is left out.
* Foolbox 2 draws a new order after every success, Foolbox 3 goes through with one to the end of
  the pass; so does this.
* A large image has more pixels than there are queries. The code of Vo et al. (SparseEvo, ICLR
  2022) sets back groups of values, all of one size, in one pass before the bisections. Here groups
  begin at ``group`` pixels and are halved when a pass brings nothing, down to single pixels: at the
  end no single pixel can be set back, as without groups.
* When single pixels bring nothing either and queries are left, the search begins again at the
  starting image, in another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.base import DECISION_BASED, SparseAttack
from brusle.attacks.options import Count
from brusle.problems import Dense, Problems, flatten_pixels
from brusle.rng import Purpose
from brusle.search import Behaviour, Feedback, Search

Unit = Literal["pixel", "value"]


@dataclass(frozen=True)
class Pointwise(SparseAttack):
    """Greedy removal of changed pixels.

    Attributes:
        pixels: most pixels that may differ from the original; the search ends there.
        queries: most queries per image.
        unit: what is set back at once: a ``"pixel"``, or a ``"value"`` (one channel of it).
        group: units that are set back together at first. None takes 1 if the queries are enough
            for two passes through the whole image, and otherwise as many as that takes.
    """

    queries: Count = 2000
    unit: Unit = "pixel"
    group: Count | None = None

    @property
    def behaviour(self) -> Behaviour:
        """Labels are enough."""
        return DECISION_BASED

    def first_group(self, units: int) -> int:
        """The size of the first groups in an image of so many ``units``."""
        if self.group is not None:
            return self.group
        return -(-2 * units // self.queries)

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Begin at the starting images, in random order."""
        assert problems.starts is not None  # the loop has found them
        n, (c, h, w) = len(problems), problems.shape
        units, width = (h * w, c) if self.unit == "pixel" else (h * w * c, 1)
        original = problems.flat_images.view(n, units, width)
        start = flatten_pixels(problems.starts).view(n, units, width)
        zeros = torch.zeros_like(problems.labels)
        search = _PointwiseSearch(
            channels=c,
            first=self.first_group(units),
            stream=rng.streams(seed, problems.ids, restart),
            original=original,
            start=start,
            current=start.clone(),
            candidate=start.clone(),
            turn=torch.zeros(n, units, dtype=torch.int64, device=zeros.device),
            left=zeros.clone(),
            at=zeros.clone(),
            group=torch.full_like(zeros, self.first_group(units)),
            useful=torch.zeros_like(zeros, dtype=torch.bool),
        )
        search.shuffle(torch.arange(n, device=zeros.device), zeros)
        return search


@dataclass
class _PointwiseSearch(Search):
    """The state of Pointwise. Images are ``(n, units, values per unit)``."""

    channels: int
    first: int  # size of the first groups
    stream: Tensor
    original: Tensor
    start: Tensor
    current: Tensor  # adversarial, with the fewest changed units of this round
    candidate: Tensor
    turn: Tensor  # (n, units): when the unit has its turn in this pass
    left: Tensor  # (n,) units that differed when the pass began; the others have later turns
    at: Tensor  # (n,) how many turns of the pass are over
    group: Tensor  # (n,) units that are set back at once
    useful: Tensor  # (n,) bool: the pass has set something back

    def shuffle(self, rows: Tensor, step: Tensor) -> None:
        """Begin a pass at ``step``: the units that differ have their turns first, at random."""
        differs = (self.current[rows] != self.original[rows]).any(2)
        units = differs.shape[1]
        lots = rng.bits(self.stream[rows], step, Purpose.POINTWISE_ORDER, units).long()
        # lots are below 2**31: units that do not differ come after all others
        order = (lots + (~differs).long() * 2**31).sort(dim=1, stable=True).indices
        turns = torch.arange(units, device=rows.device).expand(len(rows), -1)
        self.turn[rows] = torch.zeros_like(order).scatter(1, order, turns)
        self.left[rows] = differs.sum(1)
        self.at[rows] = 0
        # a group of all that differs would be the original
        self.group[rows] = torch.minimum(self.group[rows], self.left[rows] // 2).clamp_min(1)

    def ask(self, step: Tensor) -> Dense:
        """The current images with their next group set back."""
        end = torch.minimum(self.at + self.group, self.left)
        chosen = (self.turn >= self.at[:, None]) & (self.turn < end[:, None])
        self.candidate = torch.where(chosen[:, :, None], self.original, self.current)
        return Dense(self.candidate.view(len(end), -1, self.channels))

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Keep what is still adversarial; at the end of a pass begin the next one."""
        kept = feedback.reached
        self.current = torch.where(kept[:, None, None], self.candidate, self.current)
        self.useful = self.useful | kept
        self.at = self.at + self.group
        over = (self.at >= self.left).nonzero()[:, 0]
        if len(over):
            self._end_pass(over)
            self.shuffle(over, step[over] + 1)

    def _end_pass(self, rows: Tensor) -> None:
        """Halve the groups of a pass in vain; after single units in vain, begin again."""
        vain, group = ~self.useful[rows], self.group[rows]
        done = vain & (group == 1)
        self.current[rows] = torch.where(done[:, None, None], self.start[rows], self.current[rows])
        group = torch.where(vain, group // 2, group)
        self.group[rows] = group.masked_fill(done, self.first)
        self.useful[rows] = False
