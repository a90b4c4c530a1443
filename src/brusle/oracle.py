"""The only caller of a victim while an attack runs, and the only place where queries are counted.

A query is one image that the victim has answered. Against a randomised victim an attack may have
every candidate answered several times and averaged (expectation over transformation, Athalye et
al., ICML 2018); each of these draws is a query. Images that were sent without a usable answer
(the call raised, or the scores were NaN) are counted apart, as ``lost``: the attack learned
nothing from them, but a victim that keeps its own books may have charged for them. A white-box
attack has the gradient with the answer; each is one query and one more in ``backward``.

A call that fails for the victim's trouble (`brusle.trouble`) is made again, with the same noise, so
that results are those of a victim without trouble.

A victim gets a copy of the images: whatever it does to them, nobody else's change.

A victim that keeps books (`brusle.replies`) says itself which images it refused, how often it sent
one in vain, and what it answered from a journal. The set of its labels may grow: answers have more
columns then than those before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from brusle import calls, rng
from brusle.answers import Answers
from brusle.errors import BrusleError, InputError, VictimError, VictimUnavailable, first_line
from brusle.ledger import BudgetError, Column, Ledger
from brusle.replies import Consultation
from brusle.scores import ABSENT, Scores, widened
from brusle.trouble import find_trouble, patiently
from brusle.victim import Victim, call_victim, check_eot, meaning_of, require_scores, traits

LossOfRows = Callable[[Scores, Tensor], Tensor]


class Memory(Protocol):
    """Answers that were given before, to the same attack; see `brusle.evaluation.storing.pending`.

    An answer is known by the number of its problem and that of the draw, from 0 for the clean
    image: attacks are deterministic, so the same draw is asked for the same image.
    """

    def recall(self, rows: Tensor, draws: Tensor) -> tuple[Tensor, Tensor] | None:
        """Positions in ``rows`` whose answers are known, and their scores; None if none is."""

    def note(self, rows: Tensor, draws: Tensor, scores: Tensor) -> None:
        """Keep answers that were just given."""


@dataclass(frozen=True)
class _Question:
    """Images that are put to the victim, one for each problem.

    Attributes:
        rows: ``(n,)`` problem numbers.
        images: ``(n, c, h, w)``.
        keys: ``(n,)``: what a victim's noise depends on.
        slope_of: a loss whose gradient is wanted as well.
        again: a second look, which no journal answers from the first.
    """

    rows: Tensor
    images: Tensor
    keys: Tensor
    slope_of: LossOfRows | None = None
    again: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, some: Tensor | slice) -> _Question:
        """Some of the images."""
        rows, images, keys = self.rows[some], self.images[some], self.keys[some]
        return replace(self, rows=rows, images=images, keys=keys)


@dataclass(frozen=True)
class _Said:
    """What one call of the victim returned.

    Attributes:
        scores: ``(n, classes)``.
        gradient: likewise, if it was asked for.
        books: what else a victim says that keeps books.
    """

    scores: Tensor
    gradient: Tensor | None = None
    books: Consultation | None = None


class Oracle:
    """Puts images to a victim in batches, counts them, and refuses to exceed the budget.

    Args:
        victim: the model under test.
        problems: how many problems there are; the ledger has a row for each.
        limit: hard limit on ``initial + search`` queries of each problem; see also `allow`.
        batch_size: most images in one call of the victim; it falls when memory runs out.
        eot: answers that are averaged for every image; more than 1 for randomised victims only.
        streams: ``(problems,)`` keys from `rng.streams` that a victim's noise depends on.
        memory: answers that need not be asked for again. They count as queries all the same.

    Attributes:
        spoils: the victim was seen to change the images that it is given.
    """

    def __init__(
        self,
        victim: Victim,
        problems: int,
        limit: int,
        batch_size: int,
        eot: int = 1,
        streams: Tensor | None = None,
        memory: Memory | None = None,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}: it must be at least 1")
        check_eot(victim, eot)
        self.victim = victim
        self.limit = torch.full((problems,), limit)
        self._most = limit
        self.batch_size = batch_size
        self.eot = eot
        self.patience = traits(victim).patience
        self.meaning = meaning_of(victim)
        self._open = traits(victim).vocabulary is not None  # new labels may come
        self.ledger = Ledger.empty(problems)
        self.classes: int | None = None
        self._dtype = torch.float32
        self.spoils = False
        self._memory = memory
        nobody = torch.arange(problems)
        self._streams = rng.streams(0, nobody) if streams is None else streams
        self._draws = torch.zeros(problems, dtype=torch.int64)
        self._keyed = hasattr(victim, "draw")
        self._consult: Callable[[Tensor, Tensor, bool], Consultation] | None = getattr(
            victim, "consult", None
        )

    def allow(self, rows: Tensor, more: Tensor | int) -> None:
        """Set the limit of the problems ``rows`` to what they have spent and ``more``."""
        self.limit[rows] = (self.ledger.attack[rows] + more).clamp_max(self._most)

    def left(self, rows: Tensor) -> Tensor:
        """``(n,)`` bool: which of the problems ``rows`` can still pay for an answer."""
        return self.answers_left(rows) > 0

    def answers_left(self, rows: Tensor) -> Tensor:
        """``(n,)``: how many answers, of `eot` queries each, the problems can still pay for."""
        return (self.limit[rows] - self.ledger.attack[rows]) // self.eot

    def ask(
        self,
        rows: Tensor,
        images: Tensor,
        columns: Sequence[Column] | Column,
        slope_of: LossOfRows | None = None,
    ) -> Answers:
        """Query ``images``, one for each problem in ``rows``: `eot` draws, averaged.

        Args:
            rows: ``(n,)`` problem numbers, all different, on the CPU.
            images: ``(n, c, h, w)``.
            columns: what the queries are for, one for all or one each.
            slope_of: a loss of scores and problem numbers whose gradient is wanted as well; for
                differentiable victims.
        """
        shares = _shares(columns)
        for column, mine in shares.items():
            over = ~self.left(rows[mine])
            if column in ("initial", "search") and bool(over.any()):
                problem = int(rows[mine][over][0])
                raise BudgetError(
                    f"problem {problem} has spent its {int(self.limit[problem])} queries"
                )
        draws = [self._draw(rows, images, shares, slope_of) for _ in range(self.eot)]
        return draws[0] if self.eot == 1 else Answers.mean(draws)

    def ask_once(self, rows: Tensor, images: Tensor, column: Column) -> Answers:
        """Query with a single draw, whatever `eot` says: what a user of the victim would see."""
        return self._draw(rows, images, _shares(column))

    def _draw(
        self,
        rows: Tensor,
        images: Tensor,
        shares: dict[Column, Tensor | slice],
        slope_of: LossOfRows | None = None,
    ) -> Answers:
        """One answer for each image, in batches, and booked."""
        keys = rows
        if self._keyed:
            keys = rng.seeds(self._streams[rows], self._draws[rows])
        question = _Question(rows, images, keys, slope_of, again="verify" in shares)
        # gradients are too large to be kept, and a verification is made anew
        if self._memory is None or slope_of is not None or question.again:
            answers = self._ask_parts(self.batch_size, question)
        else:
            answers = self._remembered(self._memory, question)
        self._draws[rows] += 1  # not before: what is asked again gets the same noise
        answered = torch.ones(len(rows), dtype=torch.int64)
        answered[list(answers.errors)] = 0
        for column, mine in shares.items():
            getattr(self.ledger, column)[rows[mine]] += answered[mine]
        if slope_of is not None:
            self.ledger.backward[rows] += answered
        return answers

    def _remembered(self, memory: Memory, question: _Question) -> Answers:
        """Answers that are known already, and the victim's for the other images."""
        known = memory.recall(question.rows, self._draws[question.rows])
        if known is None:
            return self._noted(memory, question)
        at, scores = known
        self._checked(scores, len(at))
        unknown = torch.ones(len(question), dtype=torch.bool)
        unknown[at] = False
        rest = unknown.nonzero()[:, 0]
        fresh = self._noted(memory, question.pick(rest))
        whole = self._blank(len(question)).to(scores.dtype)
        whole[at] = scores.to(whole.device)
        whole[rest] = fresh.values.to(whole.dtype)
        errors = {int(rest[i]): reason for i, reason in fresh.errors.items()}
        return Answers(whole, self.meaning, errors)

    def _noted(self, memory: Memory, question: _Question) -> Answers:
        """The victim's answers, which the memory keeps."""
        answers = self._ask_parts(self.batch_size, question)
        rows, draws = question.rows, self._draws[question.rows]
        if answers.errors:
            good = torch.tensor([at not in answers.errors for at in range(len(rows))])
            memory.note(rows[good], draws[good], answers.values[good.to(answers.values.device)])
        elif len(rows):
            memory.note(rows, draws, answers.values)
        return answers

    @contextmanager
    def whole(self, rows: Tensor, column: Column) -> Iterator[None]:
        """All questions on ``rows`` within, or none: if it is left by an exception, they are void.

        The answers until then are booked as lost, and asking again gives the same noise.
        """
        booked, draws = getattr(self.ledger, column), self._draws[rows]
        before = booked[rows]
        try:
            yield
        except BaseException:
            self.ledger.lost[rows] += booked[rows] - before
            booked[rows], self._draws[rows] = before, draws
            raise

    def _ask_parts(self, size: int, question: _Question) -> Answers:
        """Calls of at most ``size`` images each, fewer once memory has run out."""
        parts: list[Answers] = []
        start = 0
        while start < len(question):
            some = slice(start, start + min(size, self.batch_size))
            try:
                parts.append(self._ask_some(question.pick(some)))
            except BaseException:
                # their answers are of no use any more
                self._lose(question.rows[:start])
                raise
            start = some.stop
        return Answers.join(parts) if parts else Answers(self._blank(0), self.meaning)

    def _ask_some(self, question: _Question) -> Answers:
        """One call; if it fails, halve until it fits into memory or the guilty images are found."""
        rows = question.rows
        try:
            said = patiently(
                lambda: calls.call(lambda: self._call(question), self.patience.call),
                self.patience,
                self.victim.name,
                on_failure=lambda: self._lose(rows),
            )
        except VictimUnavailable:
            raise
        except KeyboardInterrupt:
            self._lose(rows)
            raise
        except BaseException as error:  # whatever a victim raises, it raises about these images
            self._lose(rows)
            if isinstance(error, BrusleError):
                raise
            no_memory = find_trouble(error) is not None
            if len(rows) == 1 and no_memory:
                raise VictimUnavailable(
                    f"{self.victim.name} runs out of memory on a single image ({first_line(error)})"
                ) from error
            if len(rows) == 1:
                return self._guilty(question, f"the victim raised {first_line(error)}")
            half = (len(rows) + 1) // 2
            if no_memory:
                self.batch_size = min(self.batch_size, half)
        else:
            return self._judged(rows, said)
        # not in the handler: the exception would keep the memory of the failed call
        return self._ask_parts(half, question)

    def _guilty(self, question: _Question, reason: str) -> Answers:
        """The answer to a single image on which the victim fails."""
        blank, gradient = self._blank(1), None
        if question.slope_of is not None:
            gradient = torch.full_like(question.images, torch.nan, device=blank.device)
        return Answers(blank, self.meaning, {0: reason}, gradient)

    def _call(self, question: _Question) -> _Said:
        """Scores, and the gradient if one is wanted."""
        images = question.images
        try:
            if question.slope_of is not None:
                there = images.to(self.victim.device)
                return self._differentiate(there, question.rows, question.slope_of)
            handed = images.to(self.victim.device, copy=True)
            if self._consult is not None:
                books = self._consult(handed, question.keys, question.again)
                return _Said(books.scores, books=books)
            scores = call_victim(self.victim, handed, question.keys)
            # one image tells: what is done to a batch is done to all of it
            self.spoils |= not torch.equal(handed[:1], images[:1].to(handed.device))
            return _Said(scores)
        except SystemExit as error:
            raise VictimError(
                f"{self.victim.name} tried to end the program (exit code {error.code}): let it "
                f"raise an exception instead"
            ) from error

    def _differentiate(self, images: Tensor, rows: Tensor, slope_of: LossOfRows) -> _Said:
        """Scores, and the gradient of a loss of them with respect to the images."""
        victim: Any = self.victim  # a differentiable one has a graph
        with torch.inference_mode(False), torch.enable_grad():  # whatever mode the caller is in
            leaf = images.detach().clone().requires_grad_()
            values: Tensor = victim.graph(leaf.clone())  # a leaf could not be changed in place
            losses = slope_of(Scores(values, self.meaning), rows)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        return _Said(values.detach(), gradient)

    def _lose(self, rows: Tensor) -> None:
        self.ledger.lost[rows] += 1

    def _blank(self, count: int) -> Tensor:
        """Scores of images that have none."""
        return torch.full(
            (count, self.classes or 0), torch.nan, dtype=self._dtype, device=self.victim.device
        )

    def _judged(self, rows: Tensor, said: _Said) -> Answers:
        """Answers, with errors where they are not finite."""
        none = said.books is not None and len(said.books.errors) == len(rows)
        # where nobody has an answer, nobody knows how many classes there are
        scores = self._blank(len(rows)) if none else self._checked(said.scores, len(rows))
        gradient = said.gradient
        reason = "the victim answered NaN or infinite scores"
        errors = dict.fromkeys(self._bad_answers(scores), reason)
        if gradient is not None:
            reason = "the gradient of the victim is NaN or infinite"
            errors = dict.fromkeys(_bad_rows(gradient.isfinite()), reason) | errors
        replayed: list[int] = []
        if said.books is not None:
            errors |= said.books.errors
            replayed = said.books.replayed.nonzero()[:, 0].tolist()
            self.ledger.lost[rows] += said.books.lost
            self.ledger.replayed[rows] += said.books.replayed
        if not errors:
            return Answers(scores, self.meaning, gradient=gradient)
        self._lose(rows[[at for at in sorted(errors) if at not in replayed]])
        bad = torch.tensor(sorted(errors))
        scores = scores.index_fill(0, bad.to(scores.device), torch.nan)
        return Answers(scores, self.meaning, errors, gradient)

    def _bad_answers(self, scores: Tensor) -> list[int]:
        """Which rows have a score that is none; that of an absent label is one."""
        good = scores.isfinite()
        return _bad_rows(good | (scores == ABSENT) if self.meaning.gives == "partial" else good)

    def _checked(self, said: Any, count: int) -> Tensor:
        """Scores, if they can be."""
        scores = require_scores(said, count, self.victim.name)
        if self.classes is None or (self._open and scores.shape[1] > self.classes):
            self.classes = scores.shape[1]
            names = self.meaning.classes
            if names and len(names) != self.classes:
                raise VictimError(
                    f"{self.victim.name} answers with {self.classes} scores, but {len(names)} "
                    f"class names were given: name each of its classes"
                )
        if self._open:  # another thread may have met new labels meanwhile
            scores = widened(scores, self.classes)
        if scores.shape[1] != self.classes:
            raise VictimError(
                f"{self.victim.name} answered with {self.classes} classes before and "
                f"{scores.shape[1]} now: the number of classes must not change"
            )
        numbers = scores if scores.is_floating_point() else scores.double()
        self._dtype = numbers.dtype
        return numbers


def _bad_rows(good: Tensor) -> list[int]:
    """Which rows have an entry that is not good."""
    bad = ~good.flatten(1).all(1)
    return bad.nonzero()[:, 0].tolist() if bool(bad.any()) else []


def _shares(columns: Sequence[Column] | Column) -> dict[Column, Tensor | slice]:
    """Which positions of a batch go into which column."""
    if isinstance(columns, str):
        return {columns: slice(None)}
    positions: dict[Column, list[int]] = {}
    for at, column in enumerate(columns):
        positions.setdefault(column, []).append(at)
    return {column: torch.tensor(mine) for column, mine in positions.items()}
