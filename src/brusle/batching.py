"""Continuous batching: one search on many problems, a full batch for the victim in every round."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from brusle.goals import Goal
from brusle.oracle import Answers, Column, traits
from brusle.problems import Candidates, Dense, Edits, changed_pixels, flatten_pixels
from brusle.rows import Rows
from brusle.search import Feedback, Search, Searching

if TYPE_CHECKING:
    from brusle.session import Session

SETTLE_AT_ONCE = 16  # verifying a few together costs one call of the victim, not many
SETTLE_WITHIN = 1.0  # seconds, where somebody waits for what is finished


@dataclass
class Found(Rows):
    """What one search has found for each of its problems.

    Attributes:
        rows: ``(n,)`` problem numbers.
        reached: ``(n,)`` bool: the goal, within the budget of pixels.
        images: ``(n, c, h, w)`` the best image.
        labels: ``(n,)`` what the victim said to it.
        losses: ``(n,)`` its loss.
        scores: ``(n, classes)`` its scores.
    """

    rows: Tensor
    reached: Tensor
    images: Tensor
    labels: Tensor
    losses: Tensor
    scores: Tensor


@dataclass
class _Live(Rows):
    """The problems in the batch: their numbers, pixels, aims, and the best of each so far."""

    search: Search
    at: Tensor  # on the CPU: places in the stage's result
    rows: Tensor  # on the CPU: numbers in the ledger
    images: Tensor
    labels: Tensor
    targets: Tensor | None
    best: Candidates
    best_loss: Tensor
    best_scores: Tensor
    began: Tensor  # on the CPU: when, in seconds

    def remember(self, candidates: Candidates, loss: Tensor, scores: Tensor, which: Tensor) -> None:
        """Take the candidates ``which`` as the best of their problems."""
        self.best = candidates.where(which, self.best)  # type: ignore[arg-type]
        self.best_loss = torch.where(which, loss, self.best_loss)
        self.best_scores = torch.where(which[:, None], scores, self.best_scores)


class Stage:
    """One search on some problems of a session; see `Session.search`."""

    def __init__(
        self,
        session: Session,
        attack: Searching,
        rows: Tensor,
        restart: int,
        warm: Edits | None,
        on_finished: Callable[[Found], None] | None,
    ) -> None:
        self.session, self.attack, self.restart, self.warm = session, attack, restart, warm
        self.on_finished = on_finished
        self.oracle, self.device = session.oracle, session.oracle.victim.device
        targeted = session.problems.targets is not None
        self.goal = Goal(targeted, attack.loss_for(targeted), session.oracle.victim.output)
        self.rows, self.problems = rows, session.problems
        self.result = Found(
            rows,
            reached=torch.zeros(len(rows), dtype=torch.bool),
            images=session.outcome.images[rows],
            labels=session.outcome.labels[rows],
            losses=session.outcome.losses[rows],
            scores=session.outcome.scores[rows],
        )
        if attack.needs_start:
            self.problems = replace(session.problems, starts=session.starts.images)
            self._take_starts()
        ready = self.oracle.left(rows) & ~self.result.reached & session.alive[rows]
        self.waiting = ready.nonzero()[:, 0]
        self.unsettled = [(~ready).nonzero()[:, 0]]
        self.settle_by = torch.inf  # when the first of these has waited long enough
        self.reserve = self._begin(0)

    def found(self) -> Found:
        """Search until nothing is waiting."""
        live = self._next(self.oracle.batch_size)
        while len(live.rows):
            began = time.monotonic()
            finished = self._round(live)
            if finished.any():
                live = self._refill(live, finished)
            now = time.monotonic()
            if now + (now - began) > self.settle_by:  # the next round would end too late
                self.settle()
            self.session.report(self.result)
        self.settle()
        return self.result

    def settle(self, at_least: int = 0) -> None:
        """Hand over finished problems, if there are enough of them."""
        at = torch.cat(self.unsettled)
        if self.on_finished is not None and len(at) > at_least:
            self.on_finished(self.result.pick(at))
            self.unsettled, self.settle_by = [at[:0]], torch.inf

    def _take_starts(self) -> None:
        """Starting images are the best so far, and may be good enough."""
        starts = self.session.starts
        starts.find(self.rows)
        for row in self.rows.tolist():
            if row in starts.failures:
                self.session.fail(row, starts.failures[row])
        has = starts.labels[self.rows] >= 0
        rows = self.rows[has]
        pixels = changed_pixels(starts.images[rows], self.problems.images[rows])
        self.result.images[has] = starts.images[rows]
        self.result.labels[has] = starts.labels[rows]
        self.result.scores[has] = starts.scores[rows]
        self.result.losses[has] = pixels.double()
        self.result.reached[has] = pixels <= self.attack.pixels

    def _next(self, count: int) -> _Live:
        """Up to ``count`` started searches of waiting problems.

        Searches are started a few at once and kept in reserve: problems finish one by one, and
        starting a search on one problem costs nearly as much as on many.
        """
        if not len(self.reserve.rows):
            self.reserve = self._begin(max(count, self.oracle.batch_size // 8))
        taken = self.reserve.pick(slice(count))
        self.reserve = self.reserve.pick(slice(count, None))
        return taken

    def _begin(self, count: int) -> _Live:
        """Take up to ``count`` of the waiting problems and start a search on them."""
        at, self.waiting = self.waiting[:count], self.waiting[count:]
        rows = self.rows[at]
        some = self.problems[rows].to(self.device)
        images, pixels = some.flat_images, self.attack.pixels
        search = self.attack.start(some, self.session.seed, self.restart)
        if self.warm is not None and len(at):
            search.resume_from(self.warm.pick(at))
        losses = torch.full_like(some.labels, torch.inf, dtype=torch.float64)
        if self.attack.dense:
            best: Candidates = Dense(flatten_pixels(self.result.images[at].to(self.device)))
        else:
            # no edits yet: pixels painted in their own colour
            index = torch.arange(pixels, device=self.device).repeat(len(rows), 1)
            best = Edits(index, images[:, :pixels].clone())
        if self.attack.needs_start:
            losses = self.result.losses[at].to(self.device)
        return _Live(
            search,
            at,
            rows,
            images,
            some.labels,
            some.targets,
            best,
            best_loss=losses,
            best_scores=self.result.scores[at].to(self.device),
            began=torch.full((len(rows),), time.monotonic(), dtype=torch.float64),
        )

    def _round(self, live: _Live) -> Tensor:
        """One query for each live problem; return which of them are finished."""
        candidates = live.search.ask()
        initial, returnable = live.search.initial(), live.search.returnable()
        shape = self.problems.shape
        images = candidates.render(live.images, shape)
        slope_of = self._loss_of_rows if self.attack.needs == "gradients" else None
        answers = self.oracle.ask(live.rows, images, _columns(initial), slope_of)
        answers.require_one()
        scores = _labels_only(answers) if self.attack.needs == "labels" else answers.scores
        loss = self.goal.losses(scores, live.labels, live.targets)
        reached = self.goal.reached(scores, live.labels, live.targets)
        gradient = None if answers.gradient is None else flatten_pixels(answers.gradient)
        output, varies = self.goal.output, traits(self.session.oracle.victim).randomised
        live.search.tell(Feedback(loss, reached, scores, gradient, output, varies))

        if self.attack.shrinks:
            assert isinstance(candidates, Dense)
            pixels = (candidates.pixels != live.images).any(2).sum(1)
            loss = pixels.double().masked_fill(~reached, torch.nan)
            reached = reached & (pixels <= self.attack.pixels)
        if not self.attack.checks_initial:
            reached &= ~initial
        best = loss < live.best_loss
        if self.attack.returns_last:
            best = ~loss.isnan() & returnable
        live.remember(candidates, loss, answers.scores, best | reached)
        success = reached.cpu()
        self.result.reached[live.at[success]] = True
        failed = torch.zeros_like(success)
        for place, reason in answers.errors.items():
            failed[place] = True
            self.session.fail(int(live.rows[place]), reason)
        return success | failed | ~self.oracle.left(live.rows)

    def _loss_of_rows(self, scores: Tensor, rows: Tensor) -> Tensor:
        some = self.problems.labels[rows].to(scores.device)
        targets = self.problems.targets
        return self.goal.losses(
            scores, some, None if targets is None else targets[rows].to(scores.device)
        )

    def _refill(self, live: _Live, finished: Tensor) -> _Live:
        """Record finished problems; put waiting ones in their place, or close the gaps."""
        slots = finished.nonzero()[:, 0]
        done, there = live.at[slots], slots.to(self.device)
        best = live.best.pick(there).render(live.images[there], self.problems.shape)
        self.result.images[done] = best.cpu()
        self.result.scores[done] = live.best_scores[there].cpu()
        self.result.labels[done] = self.result.scores[done].argmax(1)
        self.result.losses[done] = live.best_loss[there].cpu()
        self.session.outcome.times[live.rows[slots]] += time.monotonic() - live.began[slots]
        self.unsettled.append(done)
        if self.session.on_settled is not None:
            self.settle_by = min(self.settle_by, time.monotonic() + SETTLE_WITHIN)
        self.settle(at_least=SETTLE_AT_ONCE)
        while len(slots) and len(self.waiting) + len(self.reserve.rows):
            fresh = self._next(len(slots))
            joined, slots = slots[: len(fresh.rows)], slots[len(fresh.rows) :]
            live.put(joined, fresh)
            finished[joined] = False
        if len(slots) == 0:
            return live
        # the last problems move into the gaps: cheaper than copying all that stay
        count = len(live.rows) - len(slots)
        movers = (~finished[count:]).nonzero()[:, 0] + count
        live.put(slots[slots < count], live.pick(movers))
        return live.pick(slice(count))


def _columns(initial: Tensor) -> Column | list[Column]:
    if not bool(initial.any()):
        return "search"
    return ["initial" if i else "search" for i in initial.tolist()]


def _labels_only(answers: Answers) -> Tensor:
    """Scores that say no more than the label; NaN where there is no answer."""
    scores = answers.scores
    label = one_hot(scores.argmax(1), scores.shape[1]).to(scores.dtype)
    return label.masked_fill(scores.isnan(), torch.nan)
