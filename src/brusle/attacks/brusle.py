"""BruSLeAttack (Vo, Abbasnejad, Ranasinghe, ICLR 2024): a Bayesian search over a pixel mask.

A synthetic colour image x' is drawn once. The search is for a mask u of B pixels such that the
image u x' + (1 - u) x reaches the goal (equation 2). It learns how much each pixel matters as the
parameter theta of a categorical distribution with a Dirichlet prior (equations 6 to 10): pixels
whose removal did not help are worth keeping, pixels that were tried in vain are not.

Where the paper and its authors' code disagree:

* ``variant="paper"`` (default) follows whichever works. The changing rate is the code's (the
  paper's grows); ``a`` counts removed pixels (the paper's prose and algorithm 4; its equation
  says added); ``n`` starts as the sum of all initial masks; at least one pixel moves per round;
  the colours are drawn anew for each attack; a success during initialisation ends the attack;
  a failure returns the best mask.
* ``variant="reference"`` repeats what the code does differently: one fixed synthetic image for
  all attacks, no look at the label during initialisation (so at least N + 1 queries), and the
  last candidate as the result of a failure. Two of its habits are not repeated, because the
  ledger's promise comes first: one query beyond the limit, and an uncounted query at the end.

``schedule="printed"`` is the growing changing rate of the paper's text, and
``palette="inverted-levels"`` the histogram of its text on maximizing dissimilarity, where
``palette="inverted"`` is what reproduces its table (see `schedules` and `palettes`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks import palettes, schedules
from brusle.attacks.base import (
    LOSS_OPTIONS,
    LossOption,
    SparseAttack,
    choose_loss,
    require_choice,
    require_integer,
)
from brusle.attacks.palettes import PALETTES, Palette
from brusle.attacks.schedules import SCHEDULES, Schedule
from brusle.errors import InputError
from brusle.goals import Loss
from brusle.problems import Edits, Problems
from brusle.search import Feedback, Search

Variant = Literal["paper", "reference"]
_MOVE, _START, _COLOUR = range(3)  # tags of the random draws of one step


@dataclass(frozen=True)
class BruSLe(SparseAttack):
    """The paper's attack; the defaults are the paper's.

    Attributes:
        pixels: the budget B, most pixels that may differ from the original.
        queries: the limit T, most queries per image.
        palette: how the synthetic colour image is drawn, see `brusle.attacks.palettes`.
        colours: colours that a pixel may choose from; 2 and 4 are the paper's ablation.
        dissimilarity: weight new pixels by how much their colour differs (the map M).
        schedule: how the changing rate falls (or, as printed in the paper, grows), see
            `brusle.attacks.schedules`.
        lambda_0: changing rate at the start; None means 0.3 untargeted and, targeted, 0.15 up to
            128 x 128 pixels (CIFAR-10, STL-10) and 0.05 above (ImageNet).
        m1: power of the power-step schedule.
        m2: base of the power-step and step-decay schedules.
        alpha_prior: concentration of the Dirichlet prior, at least 1.
        z: smoothing of the counts.
        initial: number N of random masks to begin with.
        loss: ``"auto"`` is cross-entropy if targeted and the margin of softmax scores if not.
        variant: ``"paper"`` or ``"reference"``, see the top of this file.
    """

    palette: Palette = "binary"
    colours: int = 1
    dissimilarity: bool = True
    schedule: Schedule = "power-step"
    lambda_0: float | None = None
    m1: float = 0.24
    m2: float = 0.997
    alpha_prior: float = 1.0
    z: float = 0.01
    initial: int = 10
    loss: LossOption = "auto"
    variant: Variant = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("initial", self.initial, least=1)
        require_integer("colours", self.colours, least=1)
        require_choice("palette", self.palette, PALETTES)
        require_choice("schedule", self.schedule, SCHEDULES)
        require_choice("loss", self.loss, LOSS_OPTIONS)
        require_choice("variant", self.variant, ("paper", "reference"))
        if self.lambda_0 is not None and not 0 < self.lambda_0 <= 1:
            raise InputError(f"lambda_0 is {self.lambda_0}: it must be above 0 and at most 1")
        if self.alpha_prior < 1:
            raise InputError(f"alpha_prior is {self.alpha_prior}: below 1, weights turn negative")
        if not self.z > 0:
            raise InputError(f"z is {self.z}: it must be above 0, or unseen pixels have no weight")
        if not (self.m1 >= 0 and 0 < self.m2 <= 1):
            raise InputError(f"m1 is {self.m1} and m2 {self.m2}: it takes m1 >= 0 and 0 < m2 <= 1")
        if self.palette == "image" and self.colours != 1:
            raise InputError("palette 'image' has one colour per pixel: leave colours at 1")

    @property
    def returns_last(self) -> bool:
        """The authors' code returns its last candidate after a failure."""
        return self.variant == "reference"

    @property
    def checks_initial(self) -> bool:
        """The authors' code does not look at the label during initialisation."""
        return self.variant == "paper"

    def wants_start(self, targeted: bool) -> bool:
        """The colours may come from a starting image."""
        return self.palette == "image"

    def loss_for(self, targeted: bool) -> Loss:
        """The loss that the search follows."""
        return choose_loss(self.loss, targeted)

    def check(self, problems: Problems) -> None:
        """Raise if the options do not fit the images."""
        super().check(problems)
        if self.palette == "image" and problems.starts is None:
            raise InputError(
                "palette 'image' needs the image: give starts=, one per image (brusle attack "
                "--start FILE; brusle evaluate takes them from the data)"
            )

    def changing_rate_0(self, targeted: bool, pixels: int) -> float:
        """lambda_0 as given, or the paper's for the goal and the number of pixels."""
        if self.lambda_0 is not None:
            return self.lambda_0
        if not targeted:
            return 0.3
        return 0.15 if pixels <= 128 * 128 else 0.05

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Draw x' and M, and forget everything else."""
        n, (_, h, w) = len(problems), problems.shape
        stream = rng.streams(seed, problems.ids, restart)
        fixed = rng.streams(0, torch.zeros_like(problems.ids))
        paint = stream if self.variant == "paper" else fixed
        colour = palettes.draw(self.palette, problems, paint, self.colours)
        lambda_0 = self.changing_rate_0(problems.targets is not None, h * w)
        args = (self.queries, self.pixels, lambda_0, self.m1, self.m2, self.initial)
        moves = torch.tensor(schedules.removals(self.schedule, *args), device=stream.device)
        original = problems.flat_images.repeat_interleave(self.colours, 1)
        m = (original - colour).abs().mean(2)  # equation 11
        if not self.dissimilarity:
            m = torch.ones_like(m)  # every pixel is equally dissimilar
        return _BruSLeSearch(
            settings=self,
            moves=[moves.clamp_max(h * w - self.pixels)],
            stream=stream,
            asked=torch.zeros_like(problems.labels),
            colour=colour,
            m=m,
            useful=(m > 0).view(n, h * w, self.colours).any(2).sum(1),
            a=torch.zeros_like(m),
            n=torch.zeros_like(m),
            theta=torch.full_like(m, self.alpha_prior),
            weight=self.alpha_prior * m,
            mask=torch.arange(self.pixels, device=m.device).repeat(n, 1) * self.colours,
            candidate=torch.zeros(n, self.pixels, dtype=torch.int64, device=m.device),
            loss=torch.full((n,), torch.inf, dtype=torch.float64, device=m.device),
            given=torch.zeros(n, dtype=torch.bool, device=m.device),
        )


@dataclass
class _BruSLeSearch(Search):
    """The state of BruSLe. A mask is kept as the list of its B "arms".

    An arm is a pixel in one of its colours, number ``pixel * colours + colour``; with one colour
    per pixel, as in the paper, arms are pixels.
    """

    settings: BruSLe
    moves: list[Tensor]  # not per problem, hence in a list: (T + 1,) pixels to replace after q
    stream: Tensor
    asked: Tensor  # (n,) queries so far
    colour: Tensor  # (n, arms, c): x'
    m: Tensor  # (n, arms): the dissimilarity map M
    useful: Tensor  # (n,): pixels that the map lets in
    a: Tensor  # (n, arms): rejected rounds in which the arm was removed
    n: Tensor  # (n, arms): rounds in which the arm was in the old or the new mask
    theta: Tensor  # (n, arms), kept up to date arm by arm
    weight: Tensor  # (n, arms): theta M, likewise; 0 for the pixels of the best mask
    mask: Tensor  # (n, B): the arms of the best mask u
    candidate: Tensor  # (n, B): the arms just asked
    loss: Tensor  # (n,) of the best mask
    given: Tensor  # (n,) bool: the mask was given (`resume_from`) and has not been asked yet

    def ask(self) -> Edits:
        """Initialisation (algorithm 2) or generation (algorithm 3), as far as each row is."""
        initial = self.initial()
        if not bool(initial.all()):
            self.candidate = self._generate()
        if bool(initial.any()):
            rows = (initial & ~self.given).nonzero()[:, 0]
            self.candidate[rows] = self._random_masks(rows)
            self.candidate[self.given] = self.mask[self.given]
        colour = self.colour.gather(1, _channels(self.candidate, self.colour.shape[2]))
        return Edits(self.candidate // self.settings.colours, colour)

    def initial(self) -> Tensor:
        """``(n,)``: the first N candidates are random masks."""
        return self.asked < self.settings.initial

    def tell(self, feedback: Feedback) -> None:
        """Update (algorithm 4): accept what lowers the loss, count, and refresh theta."""
        initial = self.initial()[:, None]
        better = feedback.loss < self.loss
        changed = (self.candidate != self.mask) | initial
        worth_keeping = changed & ~initial & ~better[:, None]
        self.a.scatter_add_(1, self.mask, worth_keeping.float())
        self.n.scatter_add_(1, self.mask, (~initial).float().expand(self.mask.shape))
        self.n.scatter_add_(1, self.candidate, changed.float())
        touched = torch.cat([self.mask, self.candidate], 1)
        theta = self._posterior_mean(self.a.gather(1, touched), self.n.gather(1, touched))
        self.theta.scatter_(1, touched, theta)
        self.mask = torch.where(better[:, None], self.candidate, self.mask)
        arms = self._all_colours(touched)
        self.weight.scatter_(1, arms, self.theta.gather(1, arms) * self.m.gather(1, arms))
        self.weight.scatter_(1, self._all_colours(self.mask), 0.0)
        self.loss = torch.where(better, feedback.loss, self.loss)
        self.asked = self.asked + 1
        self.given = torch.zeros_like(self.given)

    def resume_from(self, edits: Edits) -> None:
        """Take the edits as the mask, and their colours into x'; the other first masks fall away.

        Colours that were found good count as fully dissimilar.
        """
        arms = edits.index * self.settings.colours
        self.colour.scatter_(1, _channels(arms, self.colour.shape[2]), edits.colour)
        self.m.scatter_(1, arms, 1.0)
        self.useful = (self.m.view(len(arms), -1, self.settings.colours) > 0).any(2).sum(1)
        self.weight = self.theta * self.m
        self.mask = arms
        self.candidate = arms.clone()
        self.given = torch.ones_like(self.given)
        self.asked = self.asked + self.settings.initial - 1

    def _posterior_mean(self, a: Tensor, n: Tensor) -> Tensor:
        """theta, the mean of the Dirichlet posterior up to normalisation (equations 6 to 8)."""
        # the paper's -1 goes with alpha_prior: next to s it would cost small weights their digits
        z = self.settings.z
        return (self.settings.alpha_prior - 1) + (a + z) / (n + z)

    def _random_masks(self, rows: Tensor) -> Tensor:
        """B pixels each, uniformly, in random ones of their colours."""
        stream, step, b = self.stream[rows], self.asked[rows], self.settings.pixels
        colours = self.settings.colours
        pixels = self.m.shape[1] // colours
        race = rng.exponential(rng.bits(stream, step, _START, pixels))
        arms = rng.winners(race, b) * colours
        if colours > 1:
            arms += rng.bits(stream, step, _COLOUR, b).long() % colours
        return arms

    def _generate(self) -> Tensor:
        """Keep b pixels by theta (equation 3), add B - b new ones by theta M (equation 12)."""
        moves = self.moves[0][self.asked.clamp_max(self.settings.queries)]
        most = int(moves.max())
        if most == 0:  # the budget is the whole image: there is only one mask
            return self.mask.clone()
        # drawing those to keep one after the other leaves the last of the race over
        theta = self.theta.gather(1, self.mask)
        b = self.settings.pixels
        numbers = rng.bits(self.stream, self.asked, _MOVE, b + 2 * most)
        slots = rng.winners(-rng.exponential(numbers[:, :b]) / theta, most)
        added = draw_in_turn(
            self._weight(moves), rng.uniform(numbers[:, b:]), self.settings.colours
        )
        moved = torch.arange(most, device=moves.device) < moves[:, None]
        return self.mask.scatter(1, slots, torch.where(moved, added, self.mask.gather(1, slots)))

    def _weight(self, moves: Tensor) -> Tensor:
        """Weights theta M, or theta where fewer than the needed pixels have a positive M."""
        if bool((self.useful - self.settings.pixels >= moves).all()):
            return self.weight
        pixels = self.m.view(len(moves), -1, self.settings.colours).amax(2)
        selected = pixels.gather(1, self.mask // self.settings.colours) > 0
        scarce = self.useful - selected.sum(1) < moves
        theta = self.theta.scatter(1, self._all_colours(self.mask), 0.0)
        return torch.where(scarce[:, None], theta, self.weight)

    def _all_colours(self, arms: Tensor) -> Tensor:
        """The arms of the same pixels in all their colours."""
        colours = self.settings.colours
        if colours == 1:
            return arms
        first = arms // colours * colours
        return (first[:, :, None] + torch.arange(colours, device=arms.device)).flatten(1)


def draw_in_turn(weight: Tensor, u: Tensor, group: int = 1) -> Tensor:
    """Draw positions by weight, one after the other, without replacement.

    Each draw takes two uniform numbers: one for a block of about the square root of all
    positions, one for the position in the block. That costs far less than a random number for
    every position, as long as few are drawn. Sums are in float64, where a number below 1 times a
    total stays below the total: a weight of 0 is never drawn, unless nothing else is left.

    Args:
        weight: ``(n, positions)``, not negative.
        u: ``(n, 2 * draws)`` float64 random numbers in (0, 1).
        group: so many neighbouring positions are taken out together (the colours of a pixel).

    Returns:
        ``(n, draws)`` positions.
    """
    n, positions = weight.shape
    size = group * math.ceil(math.sqrt(positions) / group)
    left = weight.new_zeros(n, -(-positions // size) * size)
    left[:, :positions] = weight
    left = left.view(n, -1, size)
    totals = left.sum(2, dtype=torch.float64)
    rows = torch.arange(n, device=weight.device)
    together = torch.arange(group, device=weight.device)
    drawn = []
    for turn in range(u.shape[1] // 2):
        block = _pick(totals, u[:, 2 * turn])
        inside = left[rows, block]
        place = _pick(inside, u[:, 2 * turn + 1])
        drawn.append(block * size + place)
        inside.scatter_(1, (place // group * group)[:, None] + together, 0.0)
        left[rows, block] = inside
        totals[rows, block] = inside.sum(1, dtype=torch.float64)
    return torch.stack(drawn, 1)


def _pick(weight: Tensor, u: Tensor) -> Tensor:
    """``(n,)``: the position at which the cumulated weights pass the share ``u`` of the total."""
    cumulated = weight.cumsum(1, dtype=torch.float64)
    mark = u * cumulated[:, -1]
    place = torch.searchsorted(cumulated, mark[:, None], right=True)[:, 0]
    return place.clamp_max(weight.shape[1] - 1)


def _channels(arms: Tensor, channels: int) -> Tensor:
    return arms[:, :, None].expand(-1, -1, channels)
