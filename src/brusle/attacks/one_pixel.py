"""The one-pixel attack (Su, Vargas, Sakurai, IEEE TEVC 2019): differential evolution of edits.

A member of the population is a list of edits, each a row, a column and a colour. Coordinates begin
uniform, colour values as N(128, 127). In every generation each member gets a rival, made of three
others as x_r1 + F (x_r2 - x_r3), and the better of the two survives. Only the order of losses
matters, so the paper's fitness, the probability of the true or of the target class, is the
cross-entropy here.

What the paper leaves open, or does at a length that a query limit does not allow:

* The population. The paper evolves 400 members for 100 generations, which is 40 000 queries.
  Here the limit is given, and unless told otherwise a fortieth of it is the population: of 25,
  50, 100 and 200 members, 25 did best with 5 pixels and 1000 queries on the bundled net, by a
  few points on 91 images.
* Values out of range. A coordinate outside the image is drawn anew; a colour value is cut off at
  black or white.
* Two edits on one pixel. They take neighbouring pixels instead, see `make_room`.
* Convergence. Members that all have the same loss cannot teach anything more: a new population is
  drawn. (The loop remembers the best image.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.base import (
    LOSS_OPTIONS,
    LossOption,
    SparseAttack,
    require_choice,
    require_integer,
)
from brusle.errors import InputError
from brusle.goals import Loss
from brusle.loop import Feedback, Search
from brusle.problems import Edits, Problems, to_levels

_MEMBER, _PARENTS, _AGAIN, _CROSS = range(4)  # tags of the random draws of one step


@dataclass(frozen=True)
class OnePixel(SparseAttack):
    """The paper's attack on any number of pixels.

    Attributes:
        pixels: most pixels that may differ from the original; 1, 3 and 5 in the paper.
        queries: most queries per image.
        population: members, at least 4; None means a fortieth of the queries, but at least 10.
            The paper has 400.
        f: the factor F on the difference of two members.
        crossover: chance that a rival's value comes from the new mixture and not from the member
            it challenges; 1 means no crossover, as in the paper.
        loss: ``"auto"`` is cross-entropy, which ranks images like the paper's probabilities.
    """

    pixels: int = 1
    queries: int = 1000
    population: int | None = None
    f: float = 0.5
    crossover: float = 1.0
    loss: LossOption = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population is not None:
            require_integer("population", self.population, least=4)
        require_choice("loss", self.loss, LOSS_OPTIONS)
        if not 0 < self.f <= 2:
            raise InputError(f"f is {self.f}: it must be above 0 and at most 2")
        if not 0 < self.crossover <= 1:
            raise InputError(f"crossover is {self.crossover}: it must be above 0 and at most 1")

    @property
    def members(self) -> int:
        """The size of the population."""
        return max(10, self.queries // 40) if self.population is None else self.population

    def loss_for(self, targeted: bool) -> Loss:
        """The loss that members are compared by."""
        return "ce" if self.loss == "auto" else self.loss

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """An empty population; its members are drawn as they are asked."""
        n, (c, h, w) = len(problems), problems.shape
        device = problems.images.device
        population = torch.zeros(n, self.members, self.pixels, 2 + c, device=device)
        return _OnePixelSearch(
            settings=self,
            size=[torch.tensor([h, w], device=device)],
            stream=rng.streams(seed, problems.ids, restart),
            asked=torch.zeros_like(problems.labels),
            age=torch.zeros_like(problems.labels),
            population=population,
            survivors=population.clone(),
            candidate=population[:, 0].clone(),
            loss=torch.zeros(n, self.members, dtype=torch.float64, device=device),
            given=torch.zeros(n, dtype=torch.bool, device=device),
        )


@dataclass
class _OnePixelSearch(Search):
    """The state of the evolution. A member is (pixels, 2 + c): row, column, colour in [0, 1].

    Coordinates are real numbers in [0, h) and [0, w); colours are kept on 8-bit levels.
    """

    settings: OnePixel
    size: list[Tensor]  # not per problem, hence in a list: height and width
    stream: Tensor
    asked: Tensor  # (n,) queries so far
    age: Tensor  # (n,) queries since the population was drawn
    population: Tensor  # (n, members, pixels, 2 + c): this generation
    survivors: Tensor  # the same: the next generation, as far as it is known
    candidate: Tensor  # (n, pixels, 2 + c): the member just asked
    loss: Tensor  # (n, members) of the survivors
    given: Tensor  # (n,) bool: the candidate was given (`resume_from`) and has not been asked yet

    def ask(self) -> Edits:
        """A new member while the population is being drawn, a rival of an old one after that."""
        initial = self.initial()
        if bool(initial.all()):
            fresh = self._random_members()
        elif bool(initial.any()):
            fresh = torch.where(_wide(initial), self._random_members(), self._rivals())
        else:
            fresh = self._rivals()
        self.candidate = torch.where(_wide(self.given), self.candidate, fresh)
        return self._paint(self.candidate)

    def initial(self) -> Tensor:
        """``(n,)``: the first generation is drawn at random."""
        return self.age < self.settings.members

    def tell(self, feedback: Feedback) -> None:
        """Let the better of member and rival survive; close the generations that are complete."""
        rows = torch.arange(len(self.asked), device=self.asked.device)
        member = self.age % self.settings.members
        better = self.initial() | (feedback.loss < self.loss[rows, member])
        old = self.population[rows, member]
        self.survivors[rows, member] = torch.where(_wide(better), self.candidate, old)
        self.loss[rows, member] = torch.where(better, feedback.loss, self.loss[rows, member])
        self.given = torch.zeros_like(self.given)
        self.asked = self.asked + 1
        self.age = self.age + 1
        closed = rows[member == self.settings.members - 1]
        if len(closed):
            self.population[closed] = self.survivors[closed]
            low, high = self.loss[closed].aminmax(dim=1)
            self.age[closed] = torch.where(low < high, self.age[closed], 0)

    def resume_from(self, edits: Edits) -> None:
        """Take the edits as the first member."""
        w = self.size[0][1]
        place = torch.stack([edits.index // w, edits.index % w], 2) + 0.5
        self.candidate = torch.cat([place, edits.colour], 2)
        self.given = torch.ones_like(self.given)

    def _random_members(self) -> Tensor:
        """One member each, as the paper initialises them."""
        n, k, genes = self.candidate.shape
        u = rng.uniform(rng.bits(self.stream, self.asked, _MEMBER, k * genes)).view(n, k, genes)
        colour = (128 + 127 * torch.special.ndtri(u[:, :, 2:])) / 255
        return torch.cat([self._coordinates(u[:, :, :2]), to_levels(colour)], 2)

    def _rivals(self) -> Tensor:
        """Mix three members, all different, none of them the one that is challenged."""
        rows = torch.arange(len(self.asked), device=self.asked.device)[:, None]
        member = (self.age % self.settings.members)[:, None]
        race = rng.bits(self.stream, self.asked, _PARENTS, self.settings.members)
        others = rng.winners(race.scatter_(1, member, torch.iinfo(race.dtype).max), 3)
        one, two, three = self.population[rows, others].unbind(1)
        # no fused operation: its last bit may depend on the place in the batch
        mixed = one + (two - three) * self.settings.f
        place, size = mixed[:, :, :2], self.size[0]
        outside = (place < 0) | (place >= size)
        again = rng.uniform(rng.bits(self.stream, self.asked, _AGAIN, place[0].numel()))
        place = torch.where(outside, self._coordinates(again.view(place.shape)), place)
        rival = torch.cat([place, to_levels(mixed[:, :, 2:])], 2)
        if self.settings.crossover == 1:
            return rival
        u = rng.uniform(rng.bits(self.stream, self.asked, _CROSS, rival[0].numel()))
        keep = u.view(rival.shape) >= self.settings.crossover
        return torch.where(keep, self.population[rows[:, 0], member[:, 0]], rival)

    def _coordinates(self, u: Tensor) -> Tensor:
        """Rows and columns from uniform numbers; in float32 a number near 1 must not become h."""
        last = (self.size[0] - 2.0**-10).float()
        return torch.minimum((u * self.size[0]).float(), last)

    def _paint(self, members: Tensor) -> Edits:
        h, w = self.size[0]
        row, column = members[:, :, :2].long().unbind(2)
        index, order = make_room(row * w + column, int(h * w))
        colour = members[:, :, 2:]
        return Edits(index, colour.gather(1, order[:, :, None].expand_as(colour)))


def make_room(index: Tensor, pixels: int) -> tuple[Tensor, Tensor]:
    """Move positions that occur twice to free ones nearby.

    In reading order, each position becomes the next one that those before it have left free; at
    the end of the image, where there is none, they are pushed back instead. Positions that are
    all different stay as they are.

    Args:
        index: ``(n, k)`` positions below ``pixels``.
        pixels: how many there are, at least k.

    Returns:
        ``(n, k)`` increasing positions, and where in ``index`` each of them was.
    """
    k = index.shape[1]
    if k == 1:
        return index, torch.zeros_like(index)
    sorted_index, order = index.sort(dim=1, stable=True)
    steps = torch.arange(k, device=index.device)
    # q_i = max(p_i, q_(i-1) + 1), so q_i - i is the running maximum of p_i - i
    free = (sorted_index - steps).cummax(1).values + steps
    return torch.minimum(free, pixels - k + steps), order


def _wide(which: Tensor) -> Tensor:
    return which[:, None, None]
