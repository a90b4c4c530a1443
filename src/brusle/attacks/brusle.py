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

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from brusle import rng
from brusle.attacks import palettes, schedules
from brusle.attacks.base import SparseAttack
from brusle.attacks.drawing import draw_in_turn
from brusle.attacks.options import Because, Count, Share
from brusle.attacks.palettes import Palette, SyntheticImage
from brusle.attacks.schedules import Schedule
from brusle.errors import InputError
from brusle.problems import Candidates, Edits, Problems
from brusle.rng import Purpose
from brusle.rows import Shared
from brusle.scores import Loss, LossOption, Meaning
from brusle.search import Behaviour, Feedback, Search

Variant = Literal["paper", "reference"]


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
        loss: ``"auto"`` is cross-entropy if targeted and the margin of softmax scores if not, and
            on all victims that list only some labels.
        variant: ``"paper"`` or ``"reference"``, see the top of this file.
    """

    palette: Palette = "binary"
    colours: Count = 1
    dissimilarity: bool = True
    schedule: Schedule = "power-step"
    lambda_0: Share | None = None
    m1: Annotated[float, Ge(0)] = 0.24
    m2: Share = 0.997
    alpha_prior: Annotated[float, Ge(1), Because("below 1, weights turn negative")] = 1.0
    z: Annotated[float, Gt(0), Because("it must be above 0, or unseen pixels have no weight")] = (
        0.01
    )
    initial: Count = 10
    loss: LossOption = "auto"
    variant: Variant = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.palette == "image" and self.colours != 1:
            raise InputError("palette 'image' has one colour per pixel: leave colours at 1")

    @property
    def behaviour(self) -> Behaviour:
        """The authors' code looks at no label at first, and returns its last candidate."""
        reference = self.variant == "reference"
        return Behaviour(
            returns_last=reference,
            checks_initial=not reference,
            resumes_at=self.initial - 1,
            believes="theta",
        )

    def wants_start(self, targeted: bool) -> bool:
        """The colours may come from a starting image."""
        return self.palette == "image"

    def loss_for(self, targeted: bool, meaning: Meaning) -> Loss:
        """The paper's: cross-entropy if targeted, else the margin of softmax scores."""
        return meaning.loss(self.loss, "ce" if targeted else "margin")

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

    def synthetic(self, problems: Problems, seed: int, restart: int = 0) -> SyntheticImage:
        """The image x' of each problem, which follows from options, seed and problem alone.

        The map M is its `SyntheticImage.dissimilarity`.
        """
        fixed = self.variant == "reference"
        ids = torch.zeros_like(problems.ids) if fixed else problems.ids
        stream = rng.streams(0, ids) if fixed else rng.streams(seed, ids, restart)
        return palettes.draw(self.palette, problems, stream, self.colours)

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Draw x' and M; nothing else is known yet."""
        n, (_, h, w) = len(problems), problems.shape
        stream = rng.streams(seed, problems.ids, restart)
        synthetic = self.synthetic(problems, seed, restart)
        m = synthetic.dissimilarity(problems)
        if not self.dissimilarity:
            m = torch.ones_like(m)  # every pixel is equally dissimilar
        lambda_0 = self.changing_rate_0(problems.targets is not None, h * w)
        options = (self.queries, self.pixels, lambda_0, self.m1, self.m2, self.initial)
        moves = torch.tensor(schedules.removals(self.schedule, *options), device=stream.device)
        return _BruSLeSearch(
            settings=self,
            moves=Shared(moves.clamp_max(h * w - self.pixels)),
            stream=stream,
            synthetic=synthetic,
            m=m,
            useful=_dissimilar(m, self.colours).sum(1),
            a=torch.zeros_like(m),
            n=torch.zeros_like(m),
            theta=torch.full_like(m, self.alpha_prior),
            weight=self.alpha_prior * m,
            u=torch.arange(self.pixels, device=m.device).repeat(n, 1) * self.colours,
            candidate=torch.zeros(n, self.pixels, dtype=torch.int64, device=m.device),
            loss=torch.full((n,), torch.inf, dtype=torch.float64, device=m.device),
        )


@dataclass
class _BruSLeSearch(Search):
    """The state of BruSLe. A mask is kept as the list of its B arms (see `SyntheticImage`)."""

    settings: BruSLe
    moves: Shared  # (T + 1,) pixels to replace after q queries
    stream: Tensor
    synthetic: SyntheticImage  # x'
    m: Tensor  # (n, arms): the dissimilarity map M
    useful: Tensor  # (n,): pixels that the map lets in
    a: Tensor  # (n, arms): rejected rounds in which the arm was removed
    n: Tensor  # (n, arms): rounds in which the arm was in the old or the new mask
    theta: Tensor  # (n, arms), kept up to date arm by arm
    weight: Tensor  # (n, arms): theta M, likewise; 0 for the pixels of the best mask
    u: Tensor  # (n, B): the arms of the best mask
    candidate: Tensor  # (n, B): the arms just asked
    loss: Tensor  # (n,) of the best mask

    def initial(self, step: Tensor) -> Tensor:
        """``(n,)``: the first N masks are random."""
        return step < self.settings.initial

    def ask(self, step: Tensor) -> Edits:
        """Initialisation (algorithm 2) or generation (algorithm 3), as far as each row is."""
        initial = self.initial(step)
        if not bool(initial.all()):
            self.candidate = self._generate(step)
        if bool(initial.any()):
            rows = initial.nonzero()[:, 0]
            self.candidate[rows] = self._initialise(rows, step[rows])
        return self.synthetic.edits(self.candidate)

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Update (algorithm 4): accept what lowers the loss, count, and refresh theta."""
        initial = self.initial(step)[:, None]
        better = feedback.loss < self.loss
        changed = (self.candidate != self.u) | initial
        worth_keeping = changed & ~initial & ~better[:, None]
        self.a.scatter_add_(1, self.u, worth_keeping.float())
        self.n.scatter_add_(1, self.u, (~initial).float().expand(self.u.shape))
        self.n.scatter_add_(1, self.candidate, changed.float())
        touched = torch.cat([self.u, self.candidate], 1)
        theta = self._posterior_mean(self.a.gather(1, touched), self.n.gather(1, touched))
        self.theta.scatter_(1, touched, theta)
        self.u = torch.where(better[:, None], self.candidate, self.u)
        self.loss = torch.where(better, feedback.loss, self.loss)
        self._refresh_weights(touched)

    def resume(self, edits: Edits) -> Candidates:
        """Take the edits as the mask, and their colours into x'; no other first masks are drawn.

        Colours that were found good count as fully dissimilar.
        """
        self.u = self.synthetic.take_in(edits)
        self.candidate = self.u.clone()
        self.m.scatter_(1, self.u, 1.0)
        self.useful = _dissimilar(self.m, self.settings.colours).sum(1)
        self.weight = self.theta * self.m
        return edits

    def belief(self) -> Tensor:
        """Theta, the largest of a pixel's colours."""
        return self.theta.view(len(self.theta), -1, self.settings.colours).amax(2)

    def _initialise(self, rows: Tensor, step: Tensor) -> Tensor:
        """B pixels each, uniformly, in random ones of their colours."""
        stream, b, colours = self.stream[rows], self.settings.pixels, self.settings.colours
        pixels = self.m.shape[1] // colours
        race = rng.exponential(rng.bits(stream, step, Purpose.BRUSLE_INITIAL, pixels))
        arms = rng.winners(race, b) * colours
        if colours > 1:
            arms += rng.bits(stream, step, Purpose.BRUSLE_COLOUR, b).long() % colours
        return arms

    def _generate(self, step: Tensor) -> Tensor:
        """Keep b pixels by theta (equation 3), add B - b new ones by theta M (equation 12)."""
        moves = self.moves.values[step.clamp_max(self.settings.queries)]
        most, b = int(moves.max()), self.settings.pixels
        if most == 0:  # the budget is the whole image: there is only one mask
            return self.u.clone()
        numbers = rng.bits(self.stream, step, Purpose.BRUSLE_SWAP, b + 2 * most)
        # drawing those to keep one after the other leaves the last of the race over
        theta = self.theta.gather(1, self.u)
        removed = rng.winners(-rng.exponential(numbers[:, :b]) / theta, most)
        uniform = rng.uniform(numbers[:, b:])
        added = draw_in_turn(self._theta_m(moves), uniform, self.settings.colours)
        moved = torch.arange(most, device=moves.device) < moves[:, None]
        return self.u.scatter(1, removed, torch.where(moved, added, self.u.gather(1, removed)))

    def _posterior_mean(self, a: Tensor, n: Tensor) -> Tensor:
        """theta, the mean of the Dirichlet posterior up to normalisation (equations 6 to 8)."""
        # the paper's -1 goes with alpha_prior: next to s it would cost small weights their digits
        z = self.settings.z
        return (self.settings.alpha_prior - 1) + (a + z) / (n + z)

    def _refresh_weights(self, touched: Tensor) -> None:
        """Theta M of the pixels that were touched; those of the mask cannot be added to it."""
        arms = self.synthetic.siblings(touched)
        self.weight.scatter_(1, arms, self.theta.gather(1, arms) * self.m.gather(1, arms))
        self.weight.scatter_(1, self.synthetic.siblings(self.u), 0.0)

    def _theta_m(self, moves: Tensor) -> Tensor:
        """Weights theta M, or theta where fewer than the needed pixels have a positive M."""
        if bool((self.useful - self.settings.pixels >= moves).all()):
            return self.weight
        selected = _dissimilar(self.m, self.settings.colours).gather(
            1, self.u // self.settings.colours
        )
        scarce = self.useful - selected.sum(1) < moves
        theta = self.theta.scatter(1, self.synthetic.siblings(self.u), 0.0)
        return torch.where(scarce[:, None], theta, self.weight)


def _dissimilar(m: Tensor, colours: int) -> Tensor:
    """``(n, pixels)`` bool: M is positive for one of the pixel's colours."""
    return (m > 0).view(len(m), m.shape[1] // colours, colours).any(2)
