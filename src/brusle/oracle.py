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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from brusle import calls, rng
from brusle.errors import BrusleError, InputError, VictimError, VictimUnavailable, first_line
from brusle.ledger import BudgetError, Column, Ledger
from brusle.scores import Scores
from brusle.trouble import find_trouble, patiently
from brusle.victim import Victim, call_victim, check_eot, meaning_of, traits

SEVERAL = 8  # images that fail together are the victim's trouble; fewer may all be bad ones
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
class Answers(Scores):
    """What the victim said to one batch: its scores, NaN in the rows that have an error.

    Attributes:
        errors: position in the batch to the reason why it has no scores.
        gradient: ``(n, c, h, w)`` of the loss that was asked for, if one was.
    """

    errors: dict[int, str] = field(default_factory=dict)
    gradient: Tensor | None = None

    @property
    def labels(self) -> Tensor:
        """``(n,)`` predicted labels; -1 in the rows that have an error."""
        labels = torch.full((len(self.values),), -1, device=self.values.device)
        if self.values.shape[1]:
            labels = self.values.argmax(1)
        labels[list(self.errors)] = -1
        return labels

    def require_one(self) -> None:
        """Raise if none of `SEVERAL` images or more has an answer: that says nothing of them."""
        if len(self.values) >= SEVERAL and self.common_error is not None:
            raise VictimUnavailable(
                f"none of {len(self.values)} images was answered: {self.common_error}"
            )

    @property
    def common_error(self) -> str | None:
        """Why no image at all has an answer; None if one has."""
        failed = len(self.errors) == len(self.values) > 0
        return next(iter(self.errors.values())) if failed else None

    def __add__(self, other: Answers) -> Answers:
        gradient = None
        if self.gradient is not None and other.gradient is not None:
            gradient = self.gradient + other.gradient
        errors = self.errors | other.errors
        return Answers(self.values + other.values, self.meaning, errors, gradient)

    def __truediv__(self, count: int) -> Answers:
        gradient = None if self.gradient is None else self.gradient / count
        return Answers(self.values / count, self.meaning, self.errors, gradient)


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
        self.ledger = Ledger.empty(problems)
        self.classes: int | None = None
        self._dtype = torch.float32
        self.spoils = False
        self._memory = memory
        nobody = torch.arange(problems)
        self._streams = rng.streams(0, nobody) if streams is None else streams
        self._draws = torch.zeros(problems, dtype=torch.int64)
        self._keyed = hasattr(victim, "draw")

    def allow(self, rows: Tensor, more: Tensor | int) -> None:
        """Set the limit of the problems ``rows`` to what they have spent and ``more``."""
        self.limit[rows] = (self.ledger.attack[rows] + more).clamp_max(self._most)

    def left(self, rows: Tensor) -> Tensor:
        """``(n,)`` bool: which of the problems ``rows`` can still pay for an answer."""
        return self.ledger.attack[rows] + self.eot <= self.limit[rows]

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
        answers = self._draw(rows, images, shares, slope_of)
        for _ in range(self.eot - 1):
            answers = answers + self._draw(rows, images, shares, slope_of)
        return answers if self.eot == 1 else answers / self.eot

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
        # gradients are too large to be kept, and a verification is made anew
        if self._memory is None or slope_of is not None or "verify" in shares:
            answers = self._ask_parts(self.batch_size, rows, images, keys, slope_of)
        else:
            answers = self._remembered(self._memory, rows, images, keys)
        self._draws[rows] += 1  # not before: what is asked again gets the same noise
        answered = torch.ones(len(rows), dtype=torch.int64)
        answered[list(answers.errors)] = 0
        for column, mine in shares.items():
            getattr(self.ledger, column)[rows[mine]] += answered[mine]
        if slope_of is not None:
            self.ledger.backward[rows] += answered
        return answers

    def _remembered(self, memory: Memory, rows: Tensor, images: Tensor, keys: Tensor) -> Answers:
        """Answers that are known already, and the victim's for the other images."""
        draws = self._draws[rows]
        known = memory.recall(rows, draws)
        if known is None:
            return self._noted(memory, rows, draws, images, keys)
        at, scores = known
        self._checked(scores, len(at))
        unknown = torch.ones(len(rows), dtype=torch.bool)
        unknown[at] = False
        rest = unknown.nonzero()[:, 0]
        fresh = self._noted(memory, rows[rest], draws[rest], images[rest], keys[rest])
        whole = self._blank(len(rows)).to(scores.dtype)
        whole[at] = scores.to(whole.device)
        whole[rest] = fresh.values.to(whole.dtype)
        errors = {int(rest[i]): reason for i, reason in fresh.errors.items()}
        return Answers(whole, self.meaning, errors)

    def _noted(
        self, memory: Memory, rows: Tensor, draws: Tensor, images: Tensor, keys: Tensor
    ) -> Answers:
        """The victim's answers, which the memory keeps."""
        answers = self._ask_parts(self.batch_size, rows, images, keys, None)
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

    def _ask_parts(
        self, size: int, rows: Tensor, images: Tensor, keys: Tensor, slope_of: LossOfRows | None
    ) -> Answers:
        """Calls of at most ``size`` images each, fewer once memory has run out."""
        parts: list[Answers] = []
        start = 0
        while start < len(rows):
            some = slice(start, start + min(size, self.batch_size))
            try:
                parts.append(self._ask_some(rows[some], images[some], keys[some], slope_of))
            except BaseException:
                self.ledger.lost[rows[:start]] += 1  # their answers are of no use any more
                raise
            start = some.stop
        return _join(parts) if parts else Answers(self._blank(0), self.meaning)

    def _ask_some(
        self, rows: Tensor, images: Tensor, keys: Tensor, slope_of: LossOfRows | None
    ) -> Answers:
        """One call; if it fails, halve until it fits into memory or the guilty images are found."""
        try:
            scores, gradient = patiently(
                lambda: calls.call(
                    lambda: self._call(rows, images, keys, slope_of), self.patience.call
                ),
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
                blank, reason = self._blank(1), f"the victim raised {first_line(error)}"
                slope = torch.full_like(images, torch.nan, device=blank.device)
                gradient = None if slope_of is None else slope
                return Answers(blank, self.meaning, {0: reason}, gradient)
            half = (len(rows) + 1) // 2
            if no_memory:
                self.batch_size = min(self.batch_size, half)
        else:
            return self._judged(rows, scores, gradient)
        # not in the handler: the exception would keep the memory of the failed call
        return self._ask_parts(half, rows, images, keys, slope_of)

    def _call(
        self, rows: Tensor, images: Tensor, keys: Tensor, slope_of: LossOfRows | None
    ) -> tuple[Tensor, Tensor | None]:
        """Scores, and the gradient if one is wanted."""
        try:
            if slope_of is not None:
                return self._differentiate(images.to(self.victim.device), rows, slope_of)
            handed = images.to(self.victim.device, copy=True)
            scores = call_victim(self.victim, handed, keys)
            # one image tells: what is done to a batch is done to all of it
            self.spoils |= not torch.equal(handed[:1], images[:1].to(handed.device))
            return scores, None
        except SystemExit as error:
            raise VictimError(
                f"{self.victim.name} tried to end the program (exit code {error.code}): let it "
                f"raise an exception instead"
            ) from error

    def _differentiate(
        self, images: Tensor, rows: Tensor, slope_of: LossOfRows
    ) -> tuple[Tensor, Tensor]:
        """Scores, and the gradient of a loss of them with respect to the images."""
        victim: Any = self.victim  # a differentiable one has a graph
        with torch.inference_mode(False), torch.enable_grad():  # whatever mode the caller is in
            leaf = images.detach().clone().requires_grad_()
            values: Tensor = victim.graph(leaf.clone())  # a leaf could not be changed in place
            losses = slope_of(Scores(values, self.meaning), rows)
            (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        return values.detach(), gradient

    def _lose(self, rows: Tensor) -> None:
        self.ledger.lost[rows] += 1

    def _blank(self, count: int) -> Tensor:
        """Scores of images that have none."""
        return torch.full(
            (count, self.classes or 0), torch.nan, dtype=self._dtype, device=self.victim.device
        )

    def _judged(self, rows: Tensor, scores: Tensor, gradient: Tensor | None) -> Answers:
        """Answers, with errors where they are not finite."""
        scores = self._checked(scores, len(rows))
        errors = dict.fromkeys(_bad_rows(scores), "the victim answered NaN or infinite scores")
        if gradient is not None:
            reason = "the gradient of the victim is NaN or infinite"
            errors = dict.fromkeys(_bad_rows(gradient), reason) | errors
        if not errors:
            return Answers(scores, self.meaning, gradient=gradient)
        bad = torch.tensor(sorted(errors))
        self._lose(rows[bad])
        scores = scores.index_fill(0, bad.to(scores.device), torch.nan)
        return Answers(scores, self.meaning, errors, gradient)

    def _checked(self, scores: Any, count: int) -> Tensor:
        """Scores, if they can be."""
        if not isinstance(scores, Tensor) or scores.is_complex():
            kind = str(scores.dtype) if isinstance(scores, Tensor) else type(scores).__name__
            raise VictimError(
                f"{self.victim.name} answered with {kind}: scores must be a tensor of "
                f"({count}, classes) numbers"
            )
        if scores.dim() != 2 or scores.shape[0] != count or scores.shape[1] < 2:
            raise VictimError(
                f"{self.victim.name} answered {count} images with shape {tuple(scores.shape)}: "
                f"scores must be ({count}, classes) with at least 2 classes"
            )
        if self.classes is None:
            self.classes = scores.shape[1]
            names = self.meaning.classes
            if names and len(names) != self.classes:
                raise VictimError(
                    f"{self.victim.name} answers with {self.classes} scores, but {len(names)} "
                    f"class names were given: name each of its classes"
                )
        if scores.shape[1] != self.classes:
            raise VictimError(
                f"{self.victim.name} answered with {self.classes} classes before and "
                f"{scores.shape[1]} now: the number of classes must not change"
            )
        numbers = scores if scores.is_floating_point() else scores.double()
        self._dtype = numbers.dtype
        return numbers


def _bad_rows(values: Tensor) -> list[int]:
    """Which rows have an entry that is not finite."""
    bad = ~values.isfinite().flatten(1).all(1)
    return bad.nonzero()[:, 0].tolist() if bool(bad.any()) else []


def _shares(columns: Sequence[Column] | Column) -> dict[Column, Tensor | slice]:
    """Which positions of a batch go into which column."""
    if isinstance(columns, str):
        return {columns: slice(None)}
    positions: dict[Column, list[int]] = {}
    for at, column in enumerate(columns):
        positions.setdefault(column, []).append(at)
    return {column: torch.tensor(mine) for column, mine in positions.items()}


def _join(parts: list[Answers]) -> Answers:
    """Answers to consecutive batches as one; where all of a batch failed, classes are unknown."""
    if len(parts) == 1:
        return parts[0]
    classes = max(part.values.shape[1] for part in parts)
    values: list[Tensor] = []
    slopes = [part.gradient for part in parts if part.gradient is not None]
    errors: dict[int, str] = {}
    start = 0
    for part in parts:
        count, known = part.values.shape
        values.append(part.values if known else part.values.new_full((count, classes), torch.nan))
        errors |= {start + at: reason for at, reason in part.errors.items()}
        start += count
    gradient = torch.cat(slopes) if slopes else None
    return Answers(torch.cat(values), parts[0].meaning, errors, gradient)
