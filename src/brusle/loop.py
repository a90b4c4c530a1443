"""The one loop: propose images, receive scores, learn, propose again, for many images at once.

An attack is only the part that proposes and learns (`Search`). Everything that all attacks need
is here, once: the clean check, one model call per round for all live problems, stopping at
success or at the limit, replacing finished problems by waiting ones so that the model's batch
stays full (continuous batching), keeping the best image, and having successes verified. When the
victim cannot go on or somebody interrupts, what is finished is handed over first.

A `Session` is one victim and its problems, from the clean check to the verification. A plain
attack runs one search in it; restarts, ensembles and the search for the fewest pixels run several,
on one ledger and under one limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from brusle import rng
from brusle.allocation import keep_freed_memory
from brusle.errors import InputError, VictimError, VictimUnavailable
from brusle.goals import Goal, Loss, Output
from brusle.oracle import Answers, Column, Memory, Oracle, Victim, check_eot, check_shape, traits
from brusle.problems import Candidates, Dense, Edits, Problems, changed_pixels, flatten_pixels
from brusle.results import AttackResult, Status
from brusle.rows import Rows
from brusle.starting import Starts
from brusle.verify import verify

SETTLE_AT_ONCE = 16  # verifying a few together costs one call of the victim, not many
SETTLE_WITHIN = 1.0  # seconds, where somebody waits for what is finished
Needs = Literal["labels", "scores", "gradients"]


@dataclass(frozen=True)
class Feedback:
    """What a search learns from one round; one entry per live problem.

    Attributes:
        loss: ``(n,)`` float64, lower is better; NaN where the victim failed.
        reached: ``(n,)`` bool: the goal is reached, whatever the number of pixels.
        scores: ``(n, classes)`` as the victim gave them; for an attack that needs labels only, 1
            for the label and 0 for all others, and ``loss`` follows from that.
        gradient: ``(n, h * w, c)`` of the loss with respect to the candidates, for attacks that
            need it.
        output: what ``scores`` are.
        randomised: the victim may answer the same candidate in another way.
    """

    loss: Tensor
    reached: Tensor
    scores: Tensor
    gradient: Tensor | None = None
    output: Output = "logits"
    randomised: bool = False


class Search(Rows):
    """The state of an attack on many problems, and how it proposes and learns.

    Subclasses are dataclasses (see `Rows`); what is not per problem goes into fields that are
    not tensors.
    """

    def ask(self) -> Candidates:
        """Propose one candidate per live problem."""
        raise NotImplementedError

    def initial(self) -> Tensor:
        """``(n,)`` bool: which of the candidates just asked belong to the initialisation."""
        raise NotImplementedError

    def returnable(self) -> Tensor:
        """``(n,)`` bool: which of the candidates just asked an attack that returns its last may.

        Probes, which only find out where to go, it may not.
        """
        return torch.ones_like(self.initial())

    def tell(self, feedback: Feedback) -> None:
        """Learn what the candidates just asked have scored."""
        raise NotImplementedError

    def resume_from(self, edits: Edits) -> None:
        """Begin with these edits, as many as the budget, instead of with chance.

        Called before the first `ask`, whose candidate they then are. Only `brusle.minimise` wants
        it: without it every budget would be searched from scratch.
        """
        raise NotImplementedError


class Attack(Protocol):
    """What a session needs of an attack, be it one search or several."""

    @property
    def pixels(self) -> int: ...
    @property
    def queries(self) -> int: ...
    @property
    def shortest(self) -> int:
        """Queries of the shortest of its searches: each must pay for at least one answer."""

    @property
    def needs(self) -> Needs:
        """What the victim must give."""

    def check(self, problems: Problems) -> None: ...
    def conduct(self, session: Session) -> None:
        """Run the searches that the attack consists of, and keep what they find."""


class Searching(Attack, Protocol):
    """What the loop needs of an attack that is one search."""

    @property
    def returns_last(self) -> bool:
        """Whether a failure returns the last candidate instead of the best.

        If the attack shrinks, the last one that is adversarial.
        """

    @property
    def checks_initial(self) -> bool:
        """Whether a success among the initial queries ends the attack."""

    @property
    def dense(self) -> bool:
        """Whether candidates are whole images (`Dense`) and not `Edits`."""

    @property
    def shrinks(self) -> bool:
        """Whether candidates may have more pixels than the budget, on the way to fewer.

        Such an attack is dense, the best candidate is the adversarial one with the fewest
        changed pixels, and its loss is that number.
        """

    @property
    def needs_start(self) -> bool:
        """Whether the search begins at an adversarial image, whatever its distance."""

    def loss_for(self, targeted: bool) -> Loss: ...
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


def run(
    attack: Attack,
    victim: Victim,
    problems: Problems,
    *,
    seed: int = 0,
    batch_size: int,
    eot: int = 1,
    on_progress: Callable[[Progress], None] | None = None,
    on_settled: Callable[[AttackResult, list[int]], None] | None = None,
    all_may_fail: bool = False,
    memory: Memory | None = None,
) -> AttackResult:
    """Attack all ``problems``; the result does not depend on ``batch_size`` or their order.

    That holds as far as the victim's own answers do not depend on the batch: floating-point
    models may differ in the last bits, and a search may then take another turn.

    Args:
        attack: the attack.
        victim: the victim.
        problems: the images, labels, targets.
        seed: same seed, same result.
        batch_size: most images in one call of the victim.
        eot: answers that are averaged for every candidate.
        on_progress: called after every round.
        on_settled: called with the result so far and the numbers of problems that are finished and
            verified, each once, some at a time: within about a second, or after a round that is
            longer.
        all_may_fail: if no clean image can be classified, return errors instead of raising.
        memory: answers of an interrupted run, which need not be asked for again.
    """
    began = time.monotonic()
    attack.check(problems)
    if victim.device.type == "cpu":
        keep_freed_memory()
    with torch.no_grad():
        session = Session(
            attack,
            victim,
            problems,
            seed,
            batch_size,
            eot,
            on_progress,
            on_settled,
            all_may_fail,
            memory,
        )
        try:
            attack.conduct(session)
            result = session.finish()
        except (KeyboardInterrupt, VictimError) as error:
            session.rescue(ask=isinstance(error, KeyboardInterrupt))
            raise
    result.seconds = time.monotonic() - began
    return result


class Session:
    """One victim and one set of problems, asked once for their labels, verified once.

    Attributes:
        attack: the whole attack; its ``queries`` are the limit of each problem.
        problems: all problems.
        seed: the seed.
        oracle: counts all queries.
        outcome: what is known so far; see `keep`.
        alive: ``(n,)`` bool: classified correctly at first, and no error since.
        broken: ``(n,)`` bool: the goal was reached by what was kept.
        starts: starting images, for the attacks that need one.
        goes_on: problems are worked on when they are broken, too.
    """

    def __init__(
        self,
        attack: Attack,
        victim: Victim,
        problems: Problems,
        seed: int,
        batch_size: int,
        eot: int,
        on_progress: Callable[[Progress], None] | None,
        on_settled: Callable[[AttackResult, list[int]], None] | None,
        all_may_fail: bool = False,
        memory: Memory | None = None,
    ) -> None:
        check_needs(attack, victim, eot)
        check_shape(problems.shape, victim)
        self.attack, self.problems, self.seed = attack, problems, seed
        self.on_progress, self.on_settled = on_progress, on_settled
        streams = rng.streams(seed, problems.ids)
        self.oracle = Oracle(
            victim, len(problems), attack.queries, batch_size, eot, streams, memory
        )
        self.outcome = self._clean_pass(all_may_fail)
        right = [s == "failed" for s in self.outcome.status]
        self.alive = torch.tensor(right, dtype=torch.bool)
        self.broken = torch.zeros_like(self.alive)
        self._final = ~self.alive  # nothing more will be tried on these
        self._settled = torch.zeros_like(self.alive)
        self._stage: _Stage | None = None
        self._asks = True
        self.starts = Starts(self.oracle, problems, seed, self.outcome.scores)
        self.goes_on = False

    @property
    def open(self) -> Tensor:
        """Numbers of the problems that can be attacked and are not broken yet."""
        return (self.alive & ~self.broken).nonzero()[:, 0]

    def search(
        self,
        attack: Searching,
        rows: Tensor | None = None,
        restart: int = 0,
        warm: Edits | None = None,
        queries: Tensor | None = None,
        on_finished: Callable[[Found], None] | None = None,
    ) -> Found:
        """Run one search, with at most ``attack.queries`` queries on each problem.

        What it finds is returned and not kept yet; see `keep` and `conclude`.

        Args:
            attack: the attack.
            rows: problem numbers, on the CPU; all open ones if None.
            restart: gives other random numbers.
            warm: edits to begin with, one row for each of ``rows``.
            queries: a lower limit for each of ``rows``.
            on_finished: called with what was found for problems whose search has ended, some at a
                time, so that it can be concluded before the others end. It may be called again
                with the same problems if it was interrupted.
        """
        rows = self.open if rows is None else rows
        self.oracle.allow(rows, attack.queries if queries is None else queries)
        self._stage = _Stage(self, attack, rows, restart, warm, on_finished)
        found = self._stage.found()
        self._stage = None
        return found

    def keep(self, found: Found, by: str = "") -> None:
        """Take what a search found as the result of its problems.

        Args:
            found: what it found.
            by: which search it was, where there are several kinds.
        """
        rows = found.rows
        for row in rows[found.reached].tolist():
            self.outcome.found_by[row] = by
        self.broken[rows] |= found.reached
        self.outcome.images[rows] = found.images
        self.outcome.labels[rows] = found.labels
        self.outcome.losses[rows] = found.losses
        self.outcome.scores[rows] = found.scores

    def conclude(self, found: Found, by: str = "") -> None:
        """Keep what a search found, as final; arguments as in `keep`."""
        self.keep(found, by)
        self.settle(found.rows)

    def fail(self, row: int, reason: str) -> None:
        """A problem on which the attack cannot go on: neither broken nor robust."""
        self.alive[row] = False
        self.outcome.status[row] = "error"
        self.outcome.errors[row] = reason

    def settle(self, rows: Tensor) -> None:
        """Have the successes among ``rows`` verified, and hand over what is now final."""
        rows = rows[~self._settled[rows]]
        self._final[rows] = True
        if not self._asks:
            rows = rows[~(self.alive & self.broken)[rows]]
        self._refuse_unasked(rows)
        self.outcome.queries[rows] = self.oracle.ledger.attack[rows]
        hits = rows[self.alive[rows] & self.broken[rows]].tolist()
        images, pixels = self.outcome.images, self.attack.pixels
        verdict = verify(self.oracle, self.problems, images, hits, pixels)
        for row in hits:
            self.outcome.status[row] = "unverified" if row in verdict.refused else "success"
        self.outcome.stable[verdict.stable] = True
        self.outcome.errors |= verdict.refused
        for row, reason in verdict.unanswered.items():
            self.fail(row, reason)
        self._settled[rows] = True
        if self.on_settled is not None and len(rows):
            self.on_settled(self.outcome, rows.tolist())

    def _refuse_unasked(self, rows: Tensor) -> None:
        """An image that was asked nothing has withstood nothing."""
        spent = self.oracle.ledger.attack[rows]
        for row in rows[self.alive[rows] & ~self.broken[rows] & (spent == 0)].tolist():
            self.fail(row, "the attack asked nothing: give it more queries")

    def finish(self) -> AttackResult:
        """Settle what is not settled yet."""
        self.settle((~self._settled).nonzero()[:, 0])
        return self.outcome

    def rescue(self, ask: bool) -> None:
        """Settle what is finished, since the session ends here.

        A success that is not verified is neither that nor anything else: it is left out.

        Args:
            ask: have successes verified, as long as the victim answers at once.
        """
        self._asks = False  # first what needs nobody
        self._settle_finished()
        if ask:
            self._asks = True
            self.oracle.patience = replace(self.oracle.patience, waits=0)
            with suppress(VictimError):
                self._settle_finished()

    def _settle_finished(self) -> None:
        if self._stage is not None:
            self._stage.settle()
        self.settle(self._final.nonzero()[:, 0])

    def report(self, found: Found) -> None:
        """Tell whoever watches how far things are; ``found`` is not kept yet."""
        if self.on_progress is None:
            return
        broken = self.broken.clone()
        broken[found.rows[found.reached]] = True
        spent, most = self.oracle.ledger.attack, self.attack.queries
        unfinished = self.alive & (spent + self.oracle.eot <= most)
        if not self.goes_on:
            unfinished &= ~broken
        self.on_progress(
            Progress(
                finished=len(self.problems) - int(unfinished.sum()),
                total=len(self.problems),
                successes=int(broken.sum()),
                queries=int(spent.sum()),
                remaining=int((most - spent)[unfinished].sum()),
            )
        )

    def _clean_pass(self, all_may_fail: bool) -> AttackResult:
        """Ask for the clean images: what is wrong already is not attacked."""
        problems, n = self.problems, len(self.problems)
        answers = self.oracle.ask(torch.arange(n), problems.images, "clean")
        labels = torch.full((n,), -1)
        if len(answers.errors) < n:
            problems.check_classes(answers.scores.shape[1])
            labels = answers.labels.cpu()
        elif not all_may_fail:
            raise VictimUnavailable(f"no clean image could be classified: {answers.errors[0]}")
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
            scores=answers.scores.cpu().clone(),  # may have come out of inference mode
            times=torch.zeros(n, dtype=torch.float64),
            ledger=self.oracle.ledger,
            stable=torch.zeros(n, dtype=torch.bool),
            randomised=traits(self.oracle.victim).randomised,
            notes=notes_on(self.attack, self.oracle.victim),
            errors=dict(answers.errors),
        )


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


class _Stage:
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


def check_needs(attack: Attack, victim: Victim, eot: int = 1) -> None:
    """Raise if ``victim`` does not give what ``attack`` needs, and say what would work."""
    if eot > attack.shortest:
        each = "" if attack.shortest == attack.queries else " for each search"
        raise InputError(
            f"{attack.shortest} queries{each} are not enough for one answer of eot={eot}: give "
            f"more queries, or a smaller eot"
        )
    check_eot(victim, eot)
    known, name = traits(victim), type(attack).__name__
    if attack.needs == "gradients" and not known.differentiable:
        raise InputError(
            f"{name} is a white-box attack and needs gradients, which {victim.name} does not give: "
            f"take an undefended torch model, or an attack that needs scores only (brusle, "
            f"sparse-rs) or labels only (sparse-evo, pointwise)"
        )
    if attack.needs == "scores" and known.gives == "label":
        raise InputError(
            f"{name} follows scores, but {victim.name} gives only the label: take an attack that "
            f"needs labels only (sparse-evo, pointwise, l0-hsja)"
        )


def notes_on(attack: Attack, victim: Victim) -> list[str]:
    """What a reader of the numbers should know."""
    if attack.needs == "scores" and traits(victim).gives == "partial":
        return [
            f"{victim.name} gives the scores of its best classes only: a target class outside "
            f"them is invisible to {type(attack).__name__}"
        ]
    return []
