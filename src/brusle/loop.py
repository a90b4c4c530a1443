"""The one loop: propose images, receive scores, learn, propose again, for many images at once.

An attack is only the part that proposes and learns (`Search`). Everything that all attacks need
is here, once: the clean check, one model call per round for all live problems, stopping at
success or at the limit, replacing finished problems by waiting ones so that the model's batch
stays full (continuous batching), keeping the best image, and having successes verified.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol, Self

import torch
from torch import Tensor

from brusle import rng
from brusle.allocation import keep_freed_memory
from brusle.errors import InputError, VictimError
from brusle.goals import Goal, Loss
from brusle.oracle import Column, Oracle, Victim, traits
from brusle.problems import Edits, Problems
from brusle.results import AttackResult, Status
from brusle.verify import verify


@dataclass(frozen=True)
class Feedback:
    """What a search learns from one round; one entry per live problem.

    Attributes:
        loss: ``(n,)`` float64, lower is better; NaN where the victim failed.
        reached: ``(n,)`` bool: the goal is reached.
        scores: ``(n, classes)`` as the victim gave them.
    """

    loss: Tensor
    reached: Tensor
    scores: Tensor


class Rows:
    """A dataclass whose tensors have one entry per live problem along their first axis.

    That is all the loop needs to know to drop finished problems and to let new ones in.
    """

    def pick(self, rows: Tensor | slice) -> Self:
        """The problems ``rows`` only; for a slice, without copying."""
        picked = copy.copy(self)
        for name, value in self._parts().items():
            if isinstance(value, Rows):
                setattr(picked, name, value.pick(rows))
            else:
                at = rows if isinstance(rows, slice) else rows.to(value.device)
                setattr(picked, name, value[at])
        return picked

    def put(self, rows: Tensor, fresh: Rows) -> None:
        """Let the problems of ``fresh`` take the places ``rows``."""
        for name, value in self._parts().items():
            other = getattr(fresh, name)
            if isinstance(value, Tensor):
                value[rows.to(value.device)] = other
            else:
                value.put(rows, other)

    def _parts(self) -> dict[str, Tensor | Rows]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {k: v for k, v in values.items() if isinstance(v, Tensor | Rows)}


class Search(Rows):
    """The state of an attack on many problems, and how it proposes and learns.

    Subclasses are dataclasses (see `Rows`); what is not per problem goes into fields that are
    not tensors.
    """

    def ask(self) -> Edits:
        """Propose one candidate per live problem."""
        raise NotImplementedError

    def initial(self) -> Tensor:
        """``(n,)`` bool: which of the candidates just asked belong to the initialisation."""
        raise NotImplementedError

    def tell(self, feedback: Feedback) -> None:
        """Learn what the candidates just asked have scored."""
        raise NotImplementedError


class Attack(Protocol):
    """What the loop needs of an attack."""

    @property
    def pixels(self) -> int: ...
    @property
    def queries(self) -> int: ...
    @property
    def returns_last(self) -> bool:
        """Whether a failure returns the last candidate instead of the best."""

    @property
    def checks_initial(self) -> bool:
        """Whether a success among the initial queries ends the attack."""

    @property
    def follows_scores(self) -> bool:
        """Whether the search needs more than labels."""

    def loss_for(self, targeted: bool) -> Loss: ...
    def check(self, problems: Problems) -> None: ...
    def start(self, problems: Problems, seed: int, restart: int) -> Search: ...


@dataclass(frozen=True)
class Progress:
    """A snapshot for whoever watches; see ``on_progress`` of `run`.

    Attributes:
        finished: problems that are done.
        total: all problems.
        successes: problems whose goal was reached.
        queries: queries that the attack has spent so far.
        remaining: most queries that it can still spend.
    """

    finished: int
    total: int
    successes: int
    queries: int
    remaining: int


@dataclass
class _Live(Rows):
    """The problems in the batch: their numbers, pixels, aims, and the best of each so far."""

    search: Search
    rows: Tensor  # on the CPU: numbers in the ledger and the result
    images: Tensor
    labels: Tensor
    targets: Tensor | None
    best_loss: Tensor
    best_label: Tensor
    best_index: Tensor
    best_colour: Tensor

    def remember(self, edits: Edits, loss: Tensor, labels: Tensor, which: Tensor) -> None:
        """Take the candidates ``which`` as the best of their problems."""
        self.best_loss = torch.where(which, loss, self.best_loss)
        self.best_label = torch.where(which, labels, self.best_label)
        self.best_index = torch.where(which[:, None], edits.index, self.best_index)
        self.best_colour = torch.where(which[:, None, None], edits.colour, self.best_colour)


def run(
    attack: Attack,
    victim: Victim,
    problems: Problems,
    *,
    seed: int = 0,
    restart: int = 0,
    batch_size: int,
    eot: int = 1,
    on_progress: Callable[[Progress], None] | None = None,
) -> AttackResult:
    """Attack all ``problems``; the result does not depend on ``batch_size`` or their order.

    That holds as far as the victim's own answers do not depend on the batch: floating-point
    models may differ in the last bits, and a search may then take another turn.
    """
    began = time.monotonic()
    attack.check(problems)
    if victim.device.type == "cpu":
        keep_freed_memory()
    with torch.no_grad():
        settings = (seed, restart, batch_size, eot, on_progress)
        result = _Run(attack, victim, problems, *settings).result()
    result.seconds = time.monotonic() - began
    return result


class _Run:
    """One run of the loop; see `run`."""

    def __init__(
        self,
        attack: Attack,
        victim: Victim,
        problems: Problems,
        seed: int,
        restart: int,
        batch_size: int,
        eot: int,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        if eot > attack.queries:
            raise InputError(f"{attack.queries} queries are not enough for one answer of eot={eot}")
        targeted = problems.targets is not None
        self.attack, self.problems = attack, problems
        self.seed, self.restart = seed, restart
        self.device = victim.device
        self.goal = Goal(targeted, attack.loss_for(targeted), victim.output)
        streams = rng.streams(seed, problems.ids, restart)
        self.oracle = Oracle(victim, len(problems), attack.queries, batch_size, eot, streams)
        self.outcome = self._clean_pass()
        status = enumerate(self.outcome.status)
        self.waiting = torch.tensor([row for row, s in status if s == "failed"], dtype=torch.int64)
        self.reserve = self._begin(0)
        self.hits: list[int] = []
        self.on_progress = on_progress

    def result(self) -> AttackResult:
        """Attack until nothing is waiting, then verify."""
        live = self._next(self.oracle.batch_size)
        while len(live.rows):
            finished = self._round(live)
            if finished.any():
                live = self._refill(live, finished)
            if self.on_progress is not None:
                self.on_progress(self._progress(live))
        self.outcome.queries = self.oracle.ledger.attack
        pixels, hits = self.attack.pixels, sorted(self.hits)
        verdict = verify(self.oracle, self.problems, self.outcome.images, hits, pixels)
        for row in hits:
            self.outcome.status[row] = "unverified" if row in verdict.refused else "success"
        self.outcome.stable[verdict.stable] = True
        self.outcome.errors |= verdict.refused
        return self.outcome

    def _clean_pass(self) -> AttackResult:
        """Ask for the clean images: what is wrong already is not attacked."""
        problems, n = self.problems, len(self.problems)
        answers = self.oracle.ask(torch.arange(n), problems.images, "clean")
        if len(answers.errors) == n:
            raise VictimError(f"no clean image could be classified: {answers.errors[0]}")
        problems.check_classes(answers.scores.shape[1])
        labels = answers.labels.cpu()
        status: list[Status] = [
            "failed" if right else "skipped" for right in (labels == problems.labels).tolist()
        ]
        for row in answers.errors:
            status[row] = "error"
            labels[row] = -1
        return AttackResult(
            problems,
            self.attack,
            self.seed,
            status,
            images=problems.images.clone(),
            queries=torch.zeros(n, dtype=torch.int64),
            labels=labels.clone(),
            clean_labels=labels,
            losses=torch.full((n,), torch.nan, dtype=torch.float64),
            ledger=self.oracle.ledger,
            stable=torch.zeros(n, dtype=torch.bool),
            randomised=traits(self.oracle.victim).randomised,
            notes=_notes(self.attack, self.oracle.victim),
            errors=dict(answers.errors),
        )

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
        rows, self.waiting = self.waiting[:count], self.waiting[count:]
        some = self.problems[rows].to(self.device)
        images, pixels = some.flat_images, self.attack.pixels
        return _Live(
            self.attack.start(some, self.seed, self.restart),
            rows,
            images,
            some.labels,
            some.targets,
            best_loss=torch.full_like(some.labels, torch.inf, dtype=torch.float64),
            best_label=some.labels.clone(),
            # no edits yet: pixels painted in their own colour
            best_index=torch.arange(pixels, device=self.device).repeat(len(rows), 1),
            best_colour=images[:, :pixels].clone(),
        )

    def _round(self, live: _Live) -> Tensor:
        """One query for each live problem; return which of them are finished."""
        edits = live.search.ask()
        initial = live.search.initial()
        images = edits.render(live.images, self.problems.shape)
        answers = self.oracle.ask(live.rows, images, _columns(initial))
        loss = self.goal.losses(answers.scores, live.labels, live.targets)
        reached = self.goal.reached(answers.scores, live.labels, live.targets)
        live.search.tell(Feedback(loss, reached, answers.scores))

        if not self.attack.checks_initial:
            reached &= ~initial
        best = ~loss.isnan() if self.attack.returns_last else loss < live.best_loss
        live.remember(edits, loss, answers.labels, best | reached)
        success = reached.cpu()
        self.hits += live.rows[success].tolist()
        failed = torch.zeros_like(success)
        for at, reason in answers.errors.items():
            failed[at] = True
            self.outcome.status[int(live.rows[at])] = "error"
            self.outcome.errors[int(live.rows[at])] = reason
        spent = self.oracle.ledger.attack[live.rows]
        return success | failed | (spent + self.oracle.eot > self.attack.queries)

    def _refill(self, live: _Live, finished: Tensor) -> _Live:
        """Record finished problems; put waiting ones in their place, or close the gaps."""
        slots = finished.nonzero()[:, 0]
        done, at = live.rows[slots], slots.to(self.device)
        best = Edits(live.best_index[at], live.best_colour[at])
        self.outcome.images[done] = best.render(live.images[at], self.problems.shape).cpu()
        self.outcome.labels[done] = live.best_label[at].cpu()
        self.outcome.losses[done] = live.best_loss[at].cpu()
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

    def _progress(self, live: _Live) -> Progress:
        spent = self.oracle.ledger.attack
        unfinished = len(live.rows) + len(self.reserve.rows) + len(self.waiting)
        return Progress(
            finished=len(self.problems) - unfinished,
            total=len(self.problems),
            successes=len(self.hits),
            queries=int(spent.sum()),
            remaining=unfinished * self.attack.queries - int(spent[live.rows].sum()),
        )


def _columns(initial: Tensor) -> Column | list[Column]:
    if not bool(initial.any()):
        return "search"
    return ["initial" if i else "search" for i in initial.tolist()]


def _notes(attack: Attack, victim: Victim) -> list[str]:
    """What the victim does not give and the attack would need."""
    gives = traits(victim).gives
    if attack.follows_scores and gives == "label":
        return [
            f"{type(attack).__name__} follows scores, but {victim.name} gives only the label: the "
            f"search is blind, and few successes say little about robustness"
        ]
    if attack.follows_scores and gives == "partial":
        return [
            f"{victim.name} gives the scores of its best classes only: a target class outside "
            f"them is invisible to {type(attack).__name__}"
        ]
    return []
