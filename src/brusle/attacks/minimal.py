"""The fewest pixels: any attack with a fixed budget as a search for the smallest budget.

First the attack runs with its full budget. Whatever it finds is pruned: each changed pixel in turn
goes back to its original colour and stays there if the goal is still reached. Then the attack runs
with a smaller budget, beginning with some of those pixels (a warm start), and so on: after a
success the budget falls by a quarter, after a failure it is half way back up, and when only one
pixel less is left to try, it is tried again with other random numbers until the queries are spent.

Attacks that walk towards fewer pixels by themselves (decision-based ones, sigma-zero) just walk on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.base import SparseAttack, WalkingAttack, require_integer
from brusle.attacks.combined import Wrapper, keep_better
from brusle.batching import Found
from brusle.goals import Loss
from brusle.problems import Dense, Edits, Problems, changed_pixels, flatten_pixels
from brusle.results import AttackResult
from brusle.search import Feedback, Needs, Search
from brusle.session import Session

_CHOICE = 13  # a tag apart from those of the attacks


@dataclass(frozen=True)
class Minimal(Wrapper):
    """The fewest pixels that ``attack`` can do with, in ``total`` queries per image.

    A success is an image within the attack's own budget; ``result.pixels`` says how few.

    Attributes:
        attack: the attack; its budget is the most pixels, its ``queries`` are for each try.
        total: most queries per image, over all tries.
    """

    total: int

    def __post_init__(self) -> None:
        require_integer("total", self.total, least=1)

    @property
    def queries(self) -> int:
        """Over all tries."""
        return self.total

    @property
    def shortest(self) -> int:
        """A try; the last may be cut off."""
        return min(self.total, super().shortest)

    @property
    def label(self) -> str:
        """For tables."""
        return f"minimal {self.attack.label}"

    def conduct(self, session: Session) -> None:
        """Fewer and fewer pixels, until there is one or the queries are spent."""
        session.goes_on = True
        if self.attack.shrinks:
            walk = replace(self.attack, pixels=1, queries=self.total)
            session.search(walk, on_finished=partial(self._conclude, session))
            return
        failed = torch.zeros(len(session.problems), dtype=torch.int64)
        turn = 0
        while len(rows := self._unfinished(session, session.alive.nonzero()[:, 0])):
            budgets = self._budgets(session, rows, failed[rows])
            for budget in sorted(set(budgets.tolist())):

                def tried(found: Found, budget: int = budget) -> None:
                    failed[found.rows[~found.reached]] = budget
                    keep_better(session, found)
                    self._settle(session, found.rows)

                found = self._try(session, rows[budgets == budget], budget, turn, tried)
                self._prune(session, found.rows[found.reached], turn)
            turn += 1

    def _conclude(self, session: Session, found: Found) -> None:
        """Walked down to one pixel, or until the queries were spent: what counts is the budget."""
        session.conclude(replace(found, reached=found.losses <= self.pixels))

    def _settle(self, session: Session, rows: Tensor) -> None:
        """Settle those of ``rows`` that are finished; their loss is the number of pixels."""
        over = torch.ones_like(session.alive)
        over[self._unfinished(session, rows)] = False
        rows = rows[over[rows]]
        alive = rows[session.alive[rows]]
        losses = _pixels(session, alive).double().masked_fill(~session.broken[alive], torch.inf)
        session.outcome.losses[alive] = losses
        session.settle(rows)

    def _unfinished(self, session: Session, rows: Tensor) -> Tensor:
        """Those of ``rows`` with queries left that are not at a single pixel yet."""
        rows = rows[session.alive[rows]]
        left = session.oracle.ledger.attack[rows] + session.oracle.eot <= self.total
        best = session.broken[rows] & (_pixels(session, rows) <= 1)
        return rows[left & ~best]

    def _budgets(self, session: Session, rows: Tensor, failed: Tensor) -> Tensor:
        """What to try next, given the budgets at which each problem's last tries failed."""
        best = _pixels(session, rows)
        # one pixel less than the best stays worth a try, however often it has failed
        failed = torch.minimum(failed, best - 2).clamp_min(0)
        half = best - ((best - failed) // 2).clamp_min(1)
        fewer = torch.maximum(half, best * 3 // 4).clamp(min=1).minimum(best - 1)
        return torch.where(session.broken[rows], fewer, torch.full_like(best, self.pixels))

    def _try(
        self,
        session: Session,
        rows: Tensor,
        budget: int,
        turn: int,
        on_finished: Callable[[Found], None],
    ) -> Found:
        """Attack with ``budget`` pixels, beginning with some of the best ones if there are any."""
        attack = replace(self.attack, pixels=budget)
        warm = None
        if bool(session.broken[rows].all()):
            warm = _some_edits(session, rows, budget, turn)
        return session.search(attack, rows, restart=turn, warm=warm, on_finished=on_finished)

    def _prune(self, session: Session, rows: Tensor, turn: int) -> None:
        """Take back what is not needed, one query for each changed pixel."""
        rows = self._unfinished(session, rows)
        if not len(rows):
            return
        pixels = _pixels(session, rows)
        edits = _some_edits(session, rows, int(pixels.max()), turn)
        pruning = _Pruning(1, self.total, self.needs)

        def pruned(found: Found) -> None:
            fewer = found.losses < _pixels(session, found.rows)
            session.keep(replace(found, reached=fewer).pick(fewer))
            self._settle(session, found.rows)

        session.search(
            pruning,
            rows,
            warm=edits,
            queries=pixels * session.oracle.eot,
            on_finished=pruned,
        )


def minimise(
    attack: SparseAttack,
    model: Any,
    images: Any,
    labels: Any,
    targets: Any = None,
    *,
    queries: int = 2000,
    **options: Any,
) -> AttackResult:
    """Find the fewest pixels that fool a model; ``result.pixels`` says how few.

    Args:
        attack: any attack; its ``pixels`` are the most that count as a success, its ``queries``
            the most for one try.
        model: as for an attack.
        images: ``(n, c, h, w)`` floats in [0, 1].
        labels: ``(n,)`` true labels.
        targets: ``(n,)`` labels to reach; None for an untargeted attack.
        queries: most queries per image, over all tries. They are spent to the last, unless a single
            pixel is found to do.
        **options: as for an attack (``seed``, ``batch_size``, ``starts``, ...).
    """
    return Minimal(attack, queries)(model, images, labels, targets, **options)


def _pixels(session: Session, rows: Tensor) -> Tensor:
    """``(n,)`` changed pixels of the best images so far."""
    return changed_pixels(session.outcome.images[rows], session.problems.images[rows])


def _some_edits(session: Session, rows: Tensor, count: int, turn: int) -> Edits:
    """``count`` random ones of the changed pixels; where there are fewer, others as they were."""
    images = flatten_pixels(session.outcome.images[rows])
    changed = (images != session.problems[rows].flat_images).any(2)
    stream = rng.streams(session.seed, session.problems.ids[rows])
    race = rng.exponential(rng.bits(stream, turn, _CHOICE, changed.shape[1]))
    index = rng.winners(race.masked_fill(~changed, torch.inf), count)
    device = session.oracle.victim.device
    colour = images.gather(1, index[:, :, None].expand(-1, -1, images.shape[2]))
    return Edits(index.to(device), colour.to(device))


@dataclass(frozen=True)
class _Pruning(WalkingAttack):
    """Takes changed pixels back one by one, in the order of the edits it is given."""

    gets: Needs = "labels"

    @property
    def needs(self) -> Needs:
        """Labels would do, but a victim is asked the same way throughout."""
        return self.gets

    def loss_for(self, targeted: bool) -> Loss:
        """Any: only whether the goal is reached matters."""
        return "margin"

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Wait for the edits."""
        original = problems.flat_images
        order = torch.zeros(len(problems), 1, dtype=torch.int64, device=original.device)
        at = torch.zeros_like(problems.labels)
        return _PruningSearch(original, original, order, at, Dense(original))


@dataclass
class _PruningSearch(Search):
    original: Tensor  # (n, h * w, c)
    current: Tensor  # (n, h * w, c): adversarial
    order: Tensor  # (n, k): pixels to take back
    at: Tensor  # (n,): how many of them were tried
    candidate: Dense

    def resume_from(self, edits: Edits) -> None:
        """These are the changes."""
        index = edits.index[:, :, None].expand(-1, -1, edits.colour.shape[2])
        self.current = self.original.scatter(1, index, edits.colour)
        self.order = edits.index

    def ask(self) -> Dense:
        """The image without one of its changes."""
        rows = torch.arange(len(self.at), device=self.at.device)
        pixel = self.order[rows, self.at]
        pixels = self.current.clone()
        pixels[rows, pixel] = self.original[rows, pixel]
        self.candidate = Dense(pixels)
        return self.candidate

    def initial(self) -> Tensor:
        """None is."""
        return torch.zeros_like(self.at, dtype=torch.bool)

    def tell(self, feedback: Feedback) -> None:
        """What is not needed stays away."""
        self.current = self.candidate.where(feedback.reached, Dense(self.current)).pixels
        self.at = self.at + 1
