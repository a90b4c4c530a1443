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
from brusle.attacks.base import SparseAttack
from brusle.attacks.combined import Wrapper
from brusle.attacks.options import Count
from brusle.batching import Found
from brusle.problems import Dense, Problems, flatten_pixels
from brusle.results import AttackResult
from brusle.rng import Purpose
from brusle.search import Behaviour, Feedback, Needs, Search
from brusle.session import Session


@dataclass(frozen=True)
class Minimal(Wrapper):
    """The fewest pixels that ``attack`` can do with, in ``total`` queries per image.

    A success is an image within the attack's own budget; ``result.pixels`` says how few.

    Attributes:
        attack: the attack; its budget is the most pixels, its ``queries`` are for each try.
        total: most queries per image, over all tries.
    """

    total: Count

    @property
    def queries(self) -> int:
        """Over all tries."""
        return self.total

    @property
    def shortest(self) -> int:
        """A try; the last may be cut off."""
        return min(self.total, super().shortest)

    @property
    def behaviour(self) -> Behaviour:
        """That of the attack, but a success does not end it."""
        return replace(super().behaviour, goes_on=True)

    @property
    def label(self) -> str:
        """For tables."""
        return f"minimal {self.attack.label}"

    def conduct(self, session: Session) -> None:
        """Fewer and fewer pixels, until there is one or the queries are spent."""
        if self.attack.behaviour.shrinks:
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
                    session.keep_better(found)
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
        pixels = session.pixels(alive).double()
        session.keep_losses(alive, pixels.masked_fill(~session.broken[alive], torch.inf))
        session.settle(rows)

    def _unfinished(self, session: Session, rows: Tensor) -> Tensor:
        """Those of ``rows`` with queries left that are not at a single pixel yet."""
        best = session.broken[rows] & (session.pixels(rows) <= 1)
        return rows[session.left(rows) & ~best]

    def _budgets(self, session: Session, rows: Tensor, failed: Tensor) -> Tensor:
        """What to try next, given the budgets at which each problem's last tries failed."""
        best = session.pixels(rows)
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
            warm = session.edits(rows, budget, turn)
        return session.search(attack, rows, restart=turn, warm=warm, on_finished=on_finished)

    def _prune(self, session: Session, rows: Tensor, turn: int) -> None:
        """Take back what is not needed, one query for each changed pixel."""
        rows = self._unfinished(session, rows)
        if not len(rows):
            return
        pixels = session.pixels(rows)
        pruning = _Pruning(1, self.total, self.behaviour.needs, turn)

        def pruned(found: Found) -> None:
            fewer = found.losses < session.pixels(found.rows)
            session.keep(replace(found, reached=fewer).pick(fewer))
            self._settle(session, found.rows)

        session.search(pruning, rows, from_best=True, answers=pixels, on_finished=pruned)


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
            pixel is found to do, or an `brusle.attacks.External` has nothing to ask.
        **options: as for an attack (``seed``, ``batch_size``, ``starts``, ...).
    """
    return Minimal(attack, queries)(model, images, labels, targets, **options)


@dataclass(frozen=True)
class _Pruning(SparseAttack):
    """Takes changed pixels back one by one, in random order."""

    needs: Needs = "labels"
    turn: int = 0

    @property
    def behaviour(self) -> Behaviour:
        """Labels would do, but a victim is asked the same way throughout."""
        return Behaviour(needs=self.needs, dense=True, shrinks=True)

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Begin at the best images so far."""
        assert problems.starts is not None  # the session has them
        original, current = problems.flat_images, flatten_pixels(problems.starts)
        changed = (original != current).any(2)
        stream = rng.streams(seed, problems.ids)
        lots = rng.bits(stream, self.turn, Purpose.KEPT_EDITS, changed.shape[1])
        race = rng.exponential(lots).masked_fill(~changed, torch.inf)
        order = rng.winners(race, changed.shape[1])
        return _PruningSearch(original, current, order, Dense(original))


@dataclass
class _PruningSearch(Search):
    original: Tensor  # (n, h * w, c)
    current: Tensor  # (n, h * w, c): adversarial
    order: Tensor  # (n, h * w): pixels to take back, those that differ first
    candidate: Dense

    def ask(self, step: Tensor) -> Dense:
        """The image without one of its changes."""
        rows = torch.arange(len(step), device=step.device)
        pixel = self.order[rows, step]
        pixels = self.current.clone()
        pixels[rows, pixel] = self.original[rows, pixel]
        self.candidate = Dense(pixels)
        return self.candidate

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """What is not needed stays away."""
        self.current = self.candidate.where(feedback.reached, Dense(self.current)).pixels
