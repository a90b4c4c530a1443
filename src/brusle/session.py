"""One victim and its problems, from the clean check to the verification, on one ledger.

Every attack is the same conversation: propose images, receive scores, learn, propose again. An
attack is only the part that proposes and learns (`search`). What all attacks need is here, once:
the clean check, the limit, what was found so far, having successes verified, and handing over what
is finished, also when the victim cannot go on or somebody interrupts. One model call per round for
all live problems is the business of `batching`.

A plain attack runs one search in a session; restarts, ensembles and the search for the fewest
pixels run several, on one ledger and under one limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brusle import rng
from brusle.allocation import keep_freed_memory
from brusle.batching import Found, OnFinished, Stage
from brusle.errors import InputError, VictimError, VictimUnavailable
from brusle.goals import Goal
from brusle.oracle import Memory, Oracle
from brusle.outcomes import Status, Success
from brusle.problems import Edits, Problems, changed_pixels, flatten_pixels
from brusle.results import AttackInfo, AttackResult
from brusle.rng import Purpose
from brusle.scores import ABSENT, Scores, widened
from brusle.search import Attack, Round, SearchAttack
from brusle.starting import Starts
from brusle.tracer import OnImproved, Tracer
from brusle.verify import verify
from brusle.victim import Victim, check_eot, check_shape, traits


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


OnProgress = Callable[[Progress], None]
OnSettled = Callable[[AttackResult, list[int]], None]
OnRound = Callable[[Round], None]


def run(
    attack: Attack,
    victim: Victim,
    problems: Problems,
    *,
    seed: int = 0,
    batch_size: int,
    eot: int = 1,
    on_progress: OnProgress | None = None,
    on_settled: OnSettled | None = None,
    on_round: OnRound | None = None,
    all_may_fail: bool = False,
    memory: Memory | None = None,
    success: Success = "top1",
    trace: bool = False,
    on_improved: OnImproved | None = None,
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
        on_round: called with every `Round`: what was asked, and what was answered.
        all_may_fail: if no clean image can be classified, return errors instead of raising.
        memory: answers of an interrupted run, which need not be asked for again.
        success: what counts as one, see `brusle.goals.Goal`.
        trace: keep what the searches find on their way, in ``traces`` of the result.
        on_improved: called with the number of a problem and each improvement of its trace as it is
            found, before the round that it is of is shown; traces are kept then.
    """
    began = time.monotonic()
    attack.check(problems)
    check_needs(attack, victim, eot)
    check_success(success, attack, victim, problems.targets is not None)
    check_shape(problems.shape, victim)
    if victim.device.type == "cpu":
        keep_freed_memory()
    with torch.no_grad():
        streams = rng.streams(seed, problems.ids)
        oracle = Oracle(victim, len(problems), attack.queries, batch_size, eot, streams, memory)
        session = Session(attack, oracle, problems, seed, all_may_fail, success)
        session.on_progress, session.on_settled = on_progress, on_settled
        session.on_round = on_round
        if trace or on_improved is not None:
            session.on_round = session.traced(on_round, on_improved)
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
        given_up: ``(n,)`` bool: the last search had nothing more to ask.
        idle: ``(n,)`` bool: it had nothing to ask at all, and would have nothing again.
        starts: starting images, for the attacks that need one.
        success: what counts as one.
        listed: ``(n, classes)`` bool: which labels the answer to each clean image names; None where
            no success depends on it.
        searches: how many have begun.
        on_progress: as in `run`; so are ``on_settled`` and ``on_round``.
    """

    def __init__(
        self,
        attack: Attack,
        oracle: Oracle,
        problems: Problems,
        seed: int,
        all_may_fail: bool = False,
        success: Success = "top1",
    ) -> None:
        self.attack, self.oracle, self.problems, self.seed = attack, oracle, problems, seed
        self.success = success
        self.on_progress: OnProgress | None = None
        self.on_settled: OnSettled | None = None
        self.on_round: OnRound | None = None
        self.outcome = self._clean_pass(all_may_fail)
        self.listed = self.outcome.scores > ABSENT if success == "new" else None
        right = [s == "failed" for s in self.outcome.status]
        self.alive = torch.tensor(right, dtype=torch.bool)
        self.broken = torch.zeros_like(self.alive)
        self.given_up = torch.zeros_like(self.alive)
        self.idle = torch.zeros_like(self.alive)
        self.starts = Starts(oracle, problems, seed, self.outcome.scores)
        self._final = ~self.alive  # nothing more will be tried on these
        self._settled = torch.zeros_like(self.alive)
        self._stage: Stage | None = None
        self._asks = True
        self.searches = 0
        self._tracer: Tracer | None = None

    # what an attack of several searches does

    def search(
        self,
        attack: SearchAttack,
        rows: Tensor | None = None,
        restart: int = 0,
        warm: Edits | None = None,
        from_best: bool = False,
        answers: Tensor | None = None,
        on_finished: OnFinished | None = None,
    ) -> Found:
        """Run one search, with at most ``attack.queries`` queries on each problem.

        What it finds is returned and not kept yet; see `keep` and `conclude`.

        Args:
            attack: the attack.
            rows: problem numbers, on the CPU; all unbroken ones if None.
            restart: gives other random numbers.
            warm: edits to go on from, one row for each of ``rows``.
            from_best: the starting images of the problems are the best images so far.
            answers: a lower limit for each of ``rows``, in answers (with EoT, of several queries).
            on_finished: called with what was found for problems whose search has ended, some at a
                time, so that it can be concluded before the others end. It may be called again
                with the same problems if it was interrupted.
        """
        rows = self.unbroken if rows is None else rows
        limit = attack.queries if answers is None else answers * self.oracle.eot
        self.oracle.allow(rows, limit)
        self.searches += 1
        self._stage = Stage(self, attack, rows, restart, warm, from_best, on_finished)
        found = self._stage.run()
        self._stage = None
        return found

    @property
    def unbroken(self) -> Tensor:
        """Numbers of the problems that can be attacked and are not broken yet."""
        return (self.alive & ~self.broken).nonzero()[:, 0]

    def left(self, rows: Tensor) -> Tensor:
        """``(n,)`` bool: which of ``rows`` can go on, and pay for another answer."""
        spent = self.oracle.ledger.attack[rows]
        affordable = spent + self.oracle.eot <= self.attack.queries
        return self.alive[rows] & ~self.idle[rows] & affordable

    def best(self, rows: Tensor) -> Found:
        """What was kept of ``rows`` so far, as if a new search had found nothing better."""
        return Found(
            rows,
            reached=torch.zeros(len(rows), dtype=torch.bool),
            images=self.outcome.images[rows],
            labels=self.outcome.labels[rows],
            losses=self.outcome.losses[rows],
            scores=self.outcome.scores[rows],
        )

    def pixels(self, rows: Tensor) -> Tensor:
        """``(n,)`` changed pixels of the best images so far."""
        return changed_pixels(self.outcome.images[rows], self.problems.images[rows])

    def edits(self, rows: Tensor, count: int, turn: int) -> Edits:
        """``count`` random ones of the changed pixels of the best images so far.

        Where there are fewer, others join them as they were.

        Args:
            rows: problem numbers.
            count: how many.
            turn: other turns, other random numbers.
        """
        images = flatten_pixels(self.outcome.images[rows])
        changed = (images != self.problems[rows].flat_images).any(2)
        streams = rng.streams(self.seed, self.problems.ids[rows])
        race = rng.exponential(rng.bits(streams, turn, Purpose.KEPT_EDITS, changed.shape[1]))
        index = rng.winners(race.masked_fill(~changed, torch.inf), count)
        device = self.oracle.victim.device
        colour = images.gather(1, index[:, :, None].expand(-1, -1, images.shape[2]))
        return Edits(index.to(device), colour.to(device))

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
        columns = self.oracle.classes or 0
        self.outcome.scores = widened(self.outcome.scores, columns)
        self.outcome.scores[rows] = widened(found.scores, columns)

    def keep_better(self, found: Found) -> None:
        """Keep successes, and of the failures on unbroken problems those with a lower loss."""
        lower = ~(found.losses >= self.outcome.losses[found.rows])  # NaN: nothing was kept before
        self.keep(found.pick(found.reached | (lower & ~self.broken[found.rows])))

    def keep_losses(self, rows: Tensor, losses: Tensor) -> None:
        """Say how far ``rows`` have got in other terms than those of their searches."""
        self.outcome.losses[rows] = losses

    def conclude(self, found: Found, by: str = "") -> None:
        """Keep what a search found, as final; arguments as in `keep`."""
        self.keep(found, by)
        self.settle(found.rows)

    def settle_final(self, rows: Tensor, last: bool) -> None:
        """Settle those of ``rows`` that no other search follows for: all, if this is the last."""
        over = self.broken[rows] | ~self.alive[rows]
        self.settle(rows if last else rows[over])

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
        counts = (self.success, self.listed)
        verdict = verify(self.oracle, self.problems, images, hits, pixels, *counts)
        for row in hits:
            self.outcome.status[row] = "unverified" if row in verdict.refused else "success"
        self.outcome.stable[verdict.stable] = True
        self.outcome.errors |= verdict.refused
        for row, reason in verdict.unanswered.items():
            self.fail(row, reason)
        self._settled[rows] = True
        self._keep_traces(rows.tolist())
        if self.on_settled is not None and len(rows):
            self.on_settled(self.outcome, rows.tolist())

    # what `run` and the batching do

    def traced(self, on_round: OnRound | None, on_improved: OnImproved | None = None) -> OnRound:
        """An ``on_round`` that also keeps traces; arguments as in `run`."""
        clean = Scores(self.outcome.scores.clone(), self.oracle.meaning)
        tracer = self._tracer = Tracer(self.problems, clean, on_improved)

        def both(seen: Round) -> None:
            tracer.note(seen)
            if on_round is not None:
                on_round(seen)

        return both

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

    def report(self, found: Found) -> None:
        """Tell whoever watches how far things are; ``found`` is not kept yet."""
        if self.on_progress is None:
            return
        broken = self.broken.clone()
        broken[found.rows[found.reached]] = True
        unfinished = self.left(torch.arange(len(self.problems))) & ~self.given_up
        if not self.attack.behaviour.goes_on:
            unfinished &= ~broken
        spent = self.oracle.ledger.attack
        self.on_progress(
            Progress(
                finished=len(self.problems) - int(unfinished.sum()),
                total=len(self.problems),
                successes=int(broken.sum()),
                queries=int(spent.sum()),
                remaining=int((self.attack.queries - spent)[unfinished].sum()),
            )
        )

    def _keep_traces(self, rows: list[int]) -> None:
        if self._tracer is not None:
            found = {row: self._tracer.finish(row, self.outcome) for row in rows}
            self.outcome.traces |= {row: one for row, one in found.items() if one is not None}

    def _settle_finished(self) -> None:
        if self._stage is not None:
            self._stage.settle()
        self.settle(self._final.nonzero()[:, 0])

    def _refuse_unasked(self, rows: Tensor) -> None:
        """An image that was asked nothing has withstood nothing."""
        spent = self.oracle.ledger.attack[rows]
        for row in rows[self.alive[rows] & ~self.broken[rows] & (spent == 0)].tolist():
            self.fail(row, "the attack asked nothing: give it more queries")

    def _clean_pass(self, all_may_fail: bool) -> AttackResult:
        """Ask for the clean images: what is wrong already is not attacked."""
        problems, n = self.problems, len(self.problems)
        answers = self.oracle.ask(torch.arange(n), problems.images, "clean")
        labels = torch.full((n,), -1)
        if len(answers.errors) < n:
            problems.check_classes(answers.values.shape[1])
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
            AttackInfo(self.attack.label, self.attack.pixels, self.attack.queries),
            self.seed,
            status,
            images=problems.images.clone(),
            queries=torch.zeros(n, dtype=torch.int64),
            labels=labels.clone(),
            clean_labels=labels,
            losses=torch.full((n,), torch.nan, dtype=torch.float64),
            scores=answers.values.cpu().clone(),  # may have come out of inference mode
            times=torch.zeros(n, dtype=torch.float64),
            ledger=self.oracle.ledger,
            stable=torch.zeros(n, dtype=torch.bool),
            randomised=traits(self.oracle.victim).randomised,
            notes=notes_on(self.attack, self.oracle.victim),
            errors=dict(answers.errors),
        )


def check_needs(attack: Attack, victim: Victim, eot: int = 1) -> None:
    """Raise if ``victim`` does not give what ``attack`` needs, and say what would work."""
    if eot > attack.shortest:
        each = "" if attack.shortest == attack.queries else " for each search"
        raise InputError(
            f"{attack.shortest} queries{each} are not enough for one answer of eot={eot}: give "
            f"more queries, or a smaller eot"
        )
    check_eot(victim, eot)
    known, name, needs = traits(victim), type(attack).__name__, attack.behaviour.needs
    if needs == "gradients" and not known.differentiable:
        raise InputError(
            f"{name} is a white-box attack and needs gradients, which {victim.name} does not give: "
            f"take an undefended torch model, or an attack that needs scores only (brusle, "
            f"sparse-rs) or labels only (sparse-evo, pointwise)"
        )
    if needs == "scores" and known.gives == "label":
        raise InputError(
            f"{name} follows scores, but {victim.name} gives only the label: take an attack that "
            f"needs labels only (sparse-evo, pointwise, l0-hsja)"
        )


def check_success(success: Success, attack: Attack, victim: Victim, targeted: bool) -> None:
    """Raise if nothing that ``victim`` says could be such a success."""
    if success == "top1":
        return
    Goal(targeted, "margin", success)  # knows its words, and that a target is none of these
    if traits(victim).gives != "partial":
        raise InputError(
            f"success {success!r} is about lists of labels, and {victim.name} gives "
            f"{'only the label' if traits(victim).gives == 'label' else 'all scores'}: leave it out"
        )
    if attack.behaviour.needs == "labels":
        raise InputError(
            f"{type(attack).__name__} hears the label on top only: success {success!r} is for "
            f"attacks that follow scores (brusle, sparse-rs, pixel-bandit)"
        )


def notes_on(attack: Attack, victim: Victim) -> list[str]:
    """What a reader of the numbers should know."""
    if attack.behaviour.needs == "scores" and traits(victim).gives == "partial":
        return [
            f"{victim.name} gives the scores of its best classes only: a target class outside "
            f"them is invisible to {type(attack).__name__}"
        ]
    return []
