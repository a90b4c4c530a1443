"""l0-HSJA: HopSkipJump (Chen, Jordan, Wainwright, IEEE S&P 2020) with a projection for pixels.

HopSkipJump needs labels only. It repeats three parts: a bisection between the original and an
adversarial image x to a point at the decision boundary; an estimate of the boundary's normal there,
from the labels of B_t = B_0 sqrt(t) random probes; and a step along that normal, whose size is
halved until the step ends at an adversarial image.

Vo et al. (ICLR 2022) exchange the projection of the bisection for one onto few pixels, and use
the result as a baseline; the BruSLe paper repeats it. They report that it hardly gets sparse: on
CIFAR-10 more than 90 % of the pixels are still changed after 20 000 queries. The bisection is over
the number k of pixels of x that are kept; the rest is set back to the original. Which ones are kept
is the projection:

* ``projection="authors"`` is that of the authors' utilities. Pixels are sorted by their squared
  difference from the original, summed over the channels; those without a difference are left out,
  and the k *smallest* of the others are kept. With few of them next to nothing of x is left, so
  the bisection ends where nearly all are kept: hence the 90 %. If k is not below the number of
  pixels that differ, their projection is the original itself. That can only happen where no
  smaller k was found to be adversarial; HopSkipJump cannot go on from an image that is not
  adversarial, so the search then stays at x. A failure returns the image at which the search
  stands, as the authors report it; the other projections return the one with the fewest pixels,
  which may be long past.
* ``projection="l0"`` (default) keeps the k that differ most, which makes it the Euclidean
  projection. It is ours, and gets far sparser.
* ``projection="l2"`` is the original's blending of two images, to compare with.

Steps and probes are the l_2 ones of the original; a step goes ||x - original|| / sqrt(t) far.

All images are on 8-bit levels, which the original knows nothing of. A probe of the original's size,
||x - original|| / d for d values, would vanish in rounding, so probes have a root mean square of at
least ``probe`` levels; what is averaged is the probe after rounding. A step that rounding takes
away ends the search for its size, and the next estimate begins. There is no other end: the search
goes on with ever more probes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor

from brusle import rng
from brusle.attacks.base import DECISION_BASED, SparseAttack
from brusle.attacks.options import Because, Count
from brusle.errors import InputError
from brusle.problems import Dense, Problems, flatten_pixels, to_levels
from brusle.rng import Purpose
from brusle.search import Behaviour, Feedback, Search

Projection = Literal["l0", "authors", "l2"]
_PROBE_SIZES = Because("give 0.5 to 255 levels; smaller probes vanish in rounding")


class Part(IntEnum):
    """The three parts of an iteration, in their order."""

    BISECTION = 0
    ESTIMATE = 1
    STEP = 2


@dataclass(frozen=True)
class L0HSJA(SparseAttack):
    """HopSkipJump, projected onto few pixels.

    Attributes:
        pixels: most pixels that may differ from the original; the search ends there.
        queries: most queries per image.
        projection: ``"l0"``; ``"authors"`` for the baseline of the paper; or ``"l2"`` for the
            original attack, which changes all pixels.
        probes: B_0, probes of the first estimate.
        most_probes: most probes of an estimate.
        probe: least root mean square of a probe, in 8-bit levels.
    """

    queries: Count = 2000
    projection: Projection = "l0"
    probes: Count = 100
    most_probes: Count = 10_000
    probe: Annotated[float, Ge(0.5), Le(255), _PROBE_SIZES] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most_probes < self.probes:
            raise InputError(
                f"most_probes is {self.most_probes}: it must be at least {self.probes}, as probes"
            )

    @property
    def behaviour(self) -> Behaviour:
        """The authors report where the search stands, which is not the fewest pixels it has met."""
        return replace(DECISION_BASED, returns_last=self.projection == "authors")

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Begin with a bisection between the original and the starting image."""
        assert problems.starts is not None  # the loop has found them
        original, point = problems.flat_images, flatten_pixels(problems.starts)
        stream = rng.streams(seed, problems.ids, restart)
        zeros = torch.zeros_like(problems.labels)
        search = _L0HSJASearch(
            settings=self,
            stream=stream,
            original=original,
            point=point,
            candidate=point.clone(),
            part=zeros.clone(),
            round=zeros + 1,
            low=zeros.double(),
            high=zeros.double(),
            rank=torch.zeros(original.shape[:2], dtype=torch.int64, device=zeros.device),
            probed=zeros.clone(),
            inside=zeros.clone(),
            noise=torch.zeros_like(point),
            slope=torch.zeros_like(point),
            size=zeros.double(),
        )
        search.begin_bisections(torch.arange(len(problems), device=zeros.device))
        search.end_bisections()
        return search


@dataclass
class _L0HSJASearch(Search):
    """The state of l0-HSJA; each problem is busy with one part. Images are (n, h * w, c)."""

    settings: L0HSJA
    stream: Tensor
    original: Tensor
    point: Tensor  # adversarial: the far end of a bisection, then the point at the boundary
    candidate: Tensor
    part: Tensor  # (n,): the `Part` that each problem is busy with
    round: Tensor  # (n,) t, from 1
    low: Tensor  # (n,) bisection: not adversarial (k pixels, or weight of the point)
    high: Tensor  # (n,) bisection: adversarial
    rank: Tensor  # (n, h * w): 0 for the pixel to keep first; those that do not differ come last
    probed: Tensor  # (n,) probes of this estimate so far
    inside: Tensor  # (n,) how many of them were adversarial
    noise: Tensor  # sum of the probes
    slope: Tensor  # sum of the adversarial probes; then the unit normal
    size: Tensor  # (n,) of the step

    def ask(self, step: Tensor) -> Dense:
        """The next image of each problem, as the part wants it that it is busy with."""
        self.candidate = torch.empty_like(self.point)
        for part, propose in zip(Part, (self._halfway, self._probe, self._ahead), strict=True):
            rows = (self.part == part).nonzero()[:, 0]
            if len(rows):
                self.candidate[rows] = propose(rows, step[rows])
        return Dense(self.candidate)

    def returnable(self, step: Tensor) -> Tensor:
        """``(n,)``: the search never stands at a probe."""
        return self.part != Part.ESTIMATE

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Learn from the answers, and let those whose part is over go to the next one."""
        bisecting, probing, stepping = (self.part == part for part in Part)
        self._learn_bisection(bisecting, feedback.reached)
        self._learn_probe(probing, feedback.reached)
        self._learn_step(stepping, feedback.reached)
        self.end_bisections()
        self._end_estimates(probing)
        self._give_up_steps()

    # first part: a bisection between the original and ``point``, to the boundary

    def begin_bisections(self, rows: Tensor) -> None:
        """Rank the pixels of ``point`` by how soon they are kept."""
        apart = (self.point[rows] - self.original[rows]).double().square().sum(2)
        if self.settings.projection == "authors":  # the smallest first, but for zeros
            apart = torch.where(apart > 0, -apart, -torch.inf)
        order = apart.sort(dim=1, descending=True, stable=True).indices
        places = torch.arange(order.shape[1], device=order.device).expand_as(order)
        self.rank[rows] = torch.zeros_like(order).scatter(1, order, places)
        self.low[rows] = 0
        self.high[rows] = self._whole(rows)
        self.part[rows] = Part.BISECTION

    def _whole(self, rows: Tensor) -> Tensor:
        """Where a bisection begins: all pixels that differ, or a mixture that is all point."""
        if self.settings.projection == "l2":
            return torch.ones_like(self.high[rows])
        return (self.point[rows] != self.original[rows]).any(2).sum(1).double()

    def _halfway(self, rows: Tensor, step: Tensor) -> Tensor:
        return self.project(rows, self._middle()[rows])

    def _middle(self) -> Tensor:
        middle = (self.low + self.high) / 2
        return middle if self.settings.projection == "l2" else middle.floor()

    def project(self, rows: Tensor, amount: Tensor) -> Tensor:
        """The projection Pi: ``amount`` pixels of the point, or its share of the mixture."""
        point, original = self.point[rows], self.original[rows]
        if self.settings.projection != "l2":
            kept = self.rank[rows] < amount[:, None]
            if self.settings.projection == "authors":
                kept &= (amount < self._whole(rows))[:, None]
            return torch.where(kept[:, :, None], point, original)
        weight = amount[:, None, None]
        mixture = to_levels(original + weight * (point - original))
        return torch.where((weight == 1) | (point == original), point, mixture)

    def _learn_bisection(self, mine: Tensor, reached: Tensor) -> None:
        middle = self._middle()
        self.high = torch.where(mine & reached, middle, self.high)
        self.low = torch.where(mine & ~reached, middle, self.low)

    def end_bisections(self) -> None:
        """Go to the boundary where it is known well enough, and begin an estimate there."""
        values = self.original.shape[1] * self.original.shape[2]
        close = values**-1.5 if self.settings.projection == "l2" else 1.0
        over = (self.part == Part.BISECTION) & (self.high - self.low <= close)
        rows = over.nonzero()[:, 0]
        if len(rows):
            closer = rows[self.high[rows] < self._whole(rows)]
            self.point[closer] = self.project(closer, self.high[closer])
            self._begin_estimates(rows)

    # second part: an estimate of the boundary's normal at ``point``, from B_t probes

    def _begin_estimates(self, rows: Tensor) -> None:
        self.part[rows] = Part.ESTIMATE
        self.probed[rows] = 0
        self.inside[rows] = 0
        self.noise[rows] = 0.0
        self.slope[rows] = 0.0

    def _probe(self, rows: Tensor, step: Tensor) -> Tensor:
        """The point and a random vector of fixed length, rounded to levels."""
        point = self.point[rows]
        values = point.shape[1] * point.shape[2]
        bits = rng.bits(self.stream[rows], step, Purpose.HSJA_PROBE, values)
        normal = torch.special.ndtri(rng.uniform(bits))
        least = self.settings.probe / 255 * math.sqrt(values)
        length = (_length(point - self.original[rows]) / values).clamp_min(least)
        unit = normal / _length(normal)[:, None]
        return to_levels(point + (length[:, None] * unit).view(point.shape))

    def _learn_probe(self, mine: Tensor, reached: Tensor) -> None:
        probe = (self.candidate - self.point) * mine[:, None, None]
        self.noise = self.noise + probe
        self.slope = self.slope + probe * reached[:, None, None]
        self.probed = self.probed + mine.long()
        self.inside = self.inside + (mine & reached).long()

    def _end_estimates(self, mine: Tensor) -> None:
        """Where there were enough probes: the normal, which points to the adversarial side."""
        rows = (mine & (self.probed >= self._wanted())).nonzero()[:, 0]
        if len(rows):
            sums = self.slope[rows], self.noise[rows]
            slope = estimate(*sums, self.inside[rows], self.probed[rows])
            self.slope[rows] = slope / _length(slope).clamp_min(1e-12)[:, None, None]
            self._begin_steps(rows)

    def _wanted(self) -> Tensor:
        """``(n,)`` B_t."""
        wanted = (self.settings.probes * self.round.double().sqrt()).floor().long()
        return wanted.clamp_max(self.settings.most_probes)

    # third part: a step along the normal, halved until it ends at an adversarial image

    def _begin_steps(self, rows: Tensor) -> None:
        """The first one is ||x - original|| / sqrt(t) long."""
        far = _length(self.point[rows] - self.original[rows])
        self.size[rows] = (far / self.round[rows].sqrt()).double()
        self.part[rows] = Part.STEP

    def _ahead(self, rows: Tensor, step: Tensor | None = None) -> Tensor:
        move = self.size[rows, None, None].float() * self.slope[rows]
        return to_levels(self.point[rows] + move)

    def _learn_step(self, mine: Tensor, reached: Tensor) -> None:
        """What has arrived begins the next round; the others halve their step."""
        self.size = torch.where(mine & ~reached, self.size / 2, self.size)
        arrived = mine & reached
        self.point = torch.where(arrived[:, None, None], self.candidate, self.point)
        self.round = self.round + arrived.long()
        rows = arrived.nonzero()[:, 0]
        if len(rows):
            self.begin_bisections(rows)

    def _give_up_steps(self) -> None:
        """Where rounding takes the step away: estimate anew, with more probes."""
        rows = (self.part == Part.STEP).nonzero()[:, 0]
        if len(rows):
            moves = (self._ahead(rows) != to_levels(self.point[rows])).flatten(1).any(1)
            rows = rows[~moves]
            self.round[rows] += 1
            self._begin_estimates(rows)


def estimate(slope: Tensor, noise: Tensor, inside: Tensor, probed: Tensor) -> Tensor:
    """Direction of the mean of (phi - mean phi) u over probes u, phi = 1 if adversarial, else -1.

    Where all phi are equal their mean is not subtracted, for nothing would be left.

    Args:
        slope: ``(n, h * w, c)`` sum of the adversarial probes.
        noise: ``(n, h * w, c)`` sum of all probes.
        inside: ``(n,)`` number of adversarial probes.
        probed: ``(n,)`` number of probes.
    """
    share = (inside / probed)[:, None, None]
    alike = (share == 0) | (share == 1)
    return torch.where(alike, (2 * share - 1) * noise, slope - share * noise)


def _length(vectors: Tensor) -> Tensor:
    """``(n,)`` l_2 norms; summed in float64 so that their order does not show in float32."""
    return vectors.flatten(1).double().square().sum(1).sqrt().float()
