"""Continuous batching: one search on many problems, with a full batch for the victim in each round.

Finished problems make room: when one is done, a waiting one takes its place in the same round. A
row of the batch is a problem with the state of its search, the number of its next query (``step``)
and its best candidate so far; nothing in a row depends on its neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from brusle.answers import Answers
from brusle.goals import Goal
from brusle.ledger import Column
from brusle.problems import Candidates, Dense, Edits, changed_pixels, flatten_pixels
from brusle.rows import Rows
from brusle.scores import Scores, top_labels, widened
from brusle.search import Feedback, Round, Search, SearchAttack
from brusle.victim import traits

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


OnFinished = Callable[[Found], None]


@dataclass
class _Batch(Rows):
    """The problems in the batch: their searches, numbers, aims, and the best of each so far."""

    search: Search
    at: Tensor  # on the CPU: places in the stage's result
    rows: Tensor  # on the CPU: numbers in the ledger
    step: Tensor  # queries that the search has spent
    images: Tensor
    labels: Tensor
    targets: Tensor | None
    best: Candidates
    best_loss: Tensor
    best_scores: Tensor
    began: Tensor  # on the CPU: when, in seconds

    def __len__(self) -> int:
        return len(self.rows)

    def remember(self, candidates: Candidates, loss: Tensor, scores: Tensor, which: Tensor) -> None:
        """Take the candidates ``which`` as the best of their problems."""
        self.best = candidates.where(which, self.best)
        self.best_loss = torch.where(which, loss, self.best_loss)
        self.best_scores = torch.where(which[:, None], scores, self.best_scores)


class Stage:
    """One search on some problems of a session; arguments as in `Session.search`."""

    def __init__(
        self,
        session: Session,
        attack: SearchAttack,
        rows: Tensor,
        restart: int,
        warm: Edits | None,
        from_best: bool,
        on_finished: OnFinished | None,
    ) -> None:
        self.session, self.attack, self.restart, self.warm = session, attack, restart, warm
        self.behaviour, self.on_finished = attack.behaviour, on_finished
        self.oracle, self.device = session.oracle, session.oracle.victim.device
        targeted = session.problems.targets is not None
        loss = attack.loss_for(targeted, self.oracle.meaning)
        self.goal = Goal(targeted, loss, session.success)
        self.rows, self.problems = rows, session.problems
        self.result = session.best(rows)
        if self.behaviour.needs_start:
            self.problems = replace(session.problems, starts=session.starts.images)
            self._take_starts()
        elif from_best:
            self.problems = replace(session.problems, starts=session.outcome.images)
        ready = self.oracle.left(rows) & ~self.result.reached & session.alive[rows]
        self.waiting = ready.nonzero()[:, 0]
        self.unsettled = [(~ready).nonzero()[:, 0]]
        self.settle_by = torch.inf  # when the first of these has waited long enough
        session.given_up[rows] = False
        self.batch = self.reserve = self._begin(0)

    def run(self) -> Found:
        """Search until nothing is waiting."""
        try:
            return self._run()
        finally:  # also of those that were interrupted
            for batch in (self.batch, self.reserve):
                batch.search.leave(torch.arange(len(batch)))

    def _run(self) -> Found:
        self.batch = batch = self._next(self.oracle.batch_size)
        while len(batch):
            began = time.monotonic()
            finished = self._round(batch, batch.search.ask(batch.step))
            if finished.any():
                self.batch = batch = self._refill(batch, finished)
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
        self.result.scores = widened(self.result.scores, starts.scores.shape[1])
        self.result.images[has] = starts.images[rows]
        self.result.labels[has] = starts.labels[rows]
        self.result.scores[has] = starts.scores[rows]
        self.result.losses[has] = pixels.double()
        self.result.reached[has] = pixels <= self.attack.pixels

    def _next(self, count: int) -> _Batch:
        """Up to ``count`` started searches of waiting problems; none if none is waiting.

        Searches are started a few at once and kept in reserve: problems finish one by one, and
        starting a search on one problem costs nearly as much as on many.
        """
        while not len(self.reserve) and len(self.waiting):
            self.reserve = self._begin(max(count, self.oracle.batch_size // 8))
        taken = self.reserve.pick(slice(count))
        self.reserve = self.reserve.pick(slice(count, None))
        return taken

    def _begin(self, count: int) -> _Batch:
        """Take up to ``count`` of the waiting problems and start a search on them."""
        at, self.waiting = self.waiting[:count], self.waiting[count:]
        rows = self.rows[at]
        problems = self.problems[rows].to(self.device)
        images, pixels = problems.flat_images, self.attack.pixels
        search = self.attack.start(problems, self.session.seed, self.restart)
        search.prepare(self.oracle.answers_left(rows), self.oracle.classes or 0)
        losses = torch.full_like(problems.labels, torch.inf, dtype=torch.float64)
        if self.behaviour.needs_start:
            losses = self.result.losses[at].to(self.device)
        if self.behaviour.dense:
            best: Candidates = Dense(flatten_pixels(self.result.images[at].to(self.device)))
        else:
            # no edits yet: pixels painted in their own colour
            index = torch.arange(pixels, device=self.device).repeat(len(rows), 1)
            best = Edits(index, images[:, :pixels].clone())
        batch = _Batch(
            search,
            at,
            rows,
            torch.zeros_like(problems.labels),
            images,
            problems.labels,
            problems.targets,
            best,
            best_loss=losses,
            best_scores=self.result.scores[at].to(self.device),
            began=torch.full((len(rows),), time.monotonic(), dtype=torch.float64),
        )
        idle = self._given_up(batch, torch.zeros(len(rows), dtype=torch.bool))
        self.session.idle[rows] = idle
        batch = self._drop(batch, idle)
        return batch if self.warm is None or not len(batch) else self._warmed(batch, self.warm)

    def _warmed(self, batch: _Batch, warm: Edits) -> _Batch:
        """Ask for what the searches go on from; those that are finished by that are recorded."""
        candidates = batch.search.resume(warm.pick(batch.at))
        if candidates is None:
            return batch
        batch.step += self.behaviour.resumes_at
        return self._drop(batch, self._round(batch, candidates))

    def _drop(self, batch: _Batch, finished: Tensor) -> _Batch:
        """The batch without those that are finished before their turn, which are recorded."""
        if not finished.any():
            return batch
        self._record(batch, finished.nonzero()[:, 0])
        return batch.pick((~finished).nonzero()[:, 0])

    def _round(self, batch: _Batch, candidates: Candidates) -> Tensor:
        """One query for each live problem; return which of them are finished."""
        search, step = batch.search, batch.step
        initial, returnable = search.initial(step), search.returnable(step)
        answers = self._ask(batch, candidates, initial)
        self._make_room(batch)
        feedback = self._feedback(batch, answers)
        search.tell(step, feedback)
        loss, reached = self._judge(batch, candidates, feedback)
        if not self.behaviour.checks_initial:
            reached = reached & ~initial
        best = loss < batch.best_loss
        if self.behaviour.returns_last:
            best = ~loss.isnan() & returnable
        best = best | reached
        self._show(batch, candidates, feedback, loss, best)
        batch.remember(candidates, loss, answers.values, best)
        batch.step = step + 1
        success = reached.cpu()
        self.result.reached[batch.at[success]] = True
        failed = torch.zeros_like(success)
        for place, reason in answers.errors.items():
            failed[place] = True
            self.session.fail(int(batch.rows[place]), reason)
        finished = success | failed | ~self.oracle.left(batch.rows)
        return finished | self._given_up(batch, finished)

    def _given_up(self, batch: _Batch, finished: Tensor) -> Tensor:
        """Which searches have ended by themselves; a fault is an error, unless it came too late."""
        over = torch.zeros_like(finished)
        for place, fault in batch.search.ended().items():
            over[place] = True
            if fault and not finished[place]:
                self.session.fail(int(batch.rows[place]), fault)
        self.session.given_up[batch.rows[over]] = True
        return over

    def _ask(self, batch: _Batch, candidates: Candidates, initial: Tensor) -> Answers:
        images = candidates.render(batch.images, self.problems.shape)
        slope_of = self._loss_of_rows if self.behaviour.needs == "gradients" else None
        answers = self.oracle.ask(batch.rows, images, _columns(initial), slope_of)
        answers.require_one()
        return answers

    def _make_room(self, *batches: _Batch) -> None:
        """The victim may have named labels that it had never named before."""
        columns = self.oracle.classes or 0
        self.result.scores = widened(self.result.scores, columns)
        for batch in batches:
            batch.best_scores = widened(batch.best_scores, columns)

    def _feedback(self, batch: _Batch, answers: Answers) -> Feedback:
        """What the search may know: an attack that needs labels gets labels."""
        scores: Scores = answers.labels_only if self.behaviour.needs == "labels" else answers
        listed = self.session.listed
        if listed is not None:
            listed = listed[batch.rows].to(self.device)
        aims = (batch.labels, batch.targets, listed)
        return Feedback(
            self.goal.losses(scores, *aims),
            self.goal.reached(scores, *aims),
            scores,
            None if answers.gradient is None else flatten_pixels(answers.gradient),
            traits(self.oracle.victim).randomised,
        )

    def _show(
        self,
        batch: _Batch,
        candidates: Candidates,
        feedback: Feedback,
        loss: Tensor,
        kept: Tensor,
    ) -> None:
        """Hand the round to whoever watches."""
        if self.session.on_round is not None:
            rows = batch.rows.clone()  # in the batch, others will take their places
            self.session.on_round(
                Round(
                    self.attack,
                    batch.search,
                    rows,
                    batch.step,
                    candidates,
                    feedback,
                    loss,
                    kept,
                    queries=self.oracle.ledger.attack[rows],
                    number=self.session.searches - 1,
                )
            )

    def _judge(
        self, batch: _Batch, candidates: Candidates, feedback: Feedback
    ) -> tuple[Tensor, Tensor]:
        """The loss by which candidates are the best so far, and which of them are successes."""
        if not isinstance(candidates, Dense):
            return feedback.loss, feedback.reached
        pixels = (candidates.pixels != batch.images).any(2).sum(1)
        within = pixels <= self.attack.pixels
        if self.behaviour.shrinks:
            loss = pixels.double().masked_fill(~feedback.reached, torch.nan)
        else:
            loss = feedback.loss.masked_fill(~within, torch.nan)
        return loss, feedback.reached & within

    def _loss_of_rows(self, scores: Scores, rows: Tensor) -> Tensor:
        device, asked = scores.values.device, self.problems[rows]
        targets = None if asked.targets is None else asked.targets.to(device)
        listed = None if self.session.listed is None else self.session.listed[rows].to(device)
        return self.goal.losses(scores, asked.labels.to(device), targets, listed)

    def _record(self, batch: _Batch, slots: Tensor) -> None:
        """Write down what was found for the finished problems in ``slots``, which leave."""
        batch.search.leave(slots)
        done, there = batch.at[slots], slots.to(self.device)
        best = batch.best.pick(there).render(batch.images[there], self.problems.shape)
        self.result.images[done] = best.cpu()
        self.result.scores[done] = batch.best_scores[there].cpu()
        self.result.labels[done] = top_labels(self.result.scores[done])
        self.result.losses[done] = batch.best_loss[there].cpu()
        self.session.outcome.times[batch.rows[slots]] += time.monotonic() - batch.began[slots]
        self.unsettled.append(done)
        if self.session.on_settled is not None and len(slots):
            self.settle_by = min(self.settle_by, time.monotonic() + SETTLE_WITHIN)

    def _refill(self, batch: _Batch, finished: Tensor) -> _Batch:
        """Record finished problems; put waiting ones in their place, or close the gaps."""
        slots = finished.nonzero()[:, 0]
        self._record(batch, slots)
        self.settle(at_least=SETTLE_AT_ONCE)
        while len(slots) and len(fresh := self._next(len(slots))):
            joined, slots = slots[: len(fresh)], slots[len(fresh) :]
            self._make_room(batch, fresh)
            batch.replace(joined, fresh)
            finished[joined] = False
        if len(slots) == 0:
            return batch
        # the last problems move into the gaps: cheaper than copying all that stay
        count = len(batch) - len(slots)
        movers = (~finished[count:]).nonzero()[:, 0] + count
        batch.replace(slots[slots < count], batch.pick(movers))
        return batch.pick(slice(count))


def _columns(initial: Tensor) -> Column | list[Column]:
    if not bool(initial.any()):
        return "search"
    return ["initial" if i else "search" for i in initial.tolist()]


def default_batch_size(shape: tuple[int, int, int], device: torch.device) -> int:
    """Images per model call: about a million pixels on a CPU, eight times that elsewhere."""
    _, h, w = shape
    budget = 2**20 if device.type == "cpu" else 2**23
    return max(1, min(256 if device.type == "cpu" else 1024, budget // (h * w)))
