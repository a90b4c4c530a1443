"""The only caller of a victim while an attack runs, and the only place where queries are counted.

A query is one image that the victim has answered. Against a randomised victim an attack may have
every candidate answered several times and averaged (expectation over transformation, Athalye et
al., ICML 2018); each of these draws is a query. Images that were sent without a usable answer
(the call raised, or the scores were NaN) are counted apart, as ``lost``: the attack learned
nothing from them, but a victim that keeps its own books may have charged for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from brusle import rng
from brusle.errors import BrusleError, InputError, VictimError
from brusle.goals import Output

Column = Literal["clean", "initial", "search", "verify", "lost"]
COLUMNS: tuple[Column, ...] = ("clean", "initial", "search", "verify", "lost")


class Victim(Protocol):
    """Anything that answers a batch of images with scores.

    ``__call__`` takes ``(n, c, h, w)`` float32 in [0, 1] on ``device`` and returns
    ``(n, classes)``, of the kind that ``output`` declares.
    """

    @property
    def name(self) -> str: ...
    @property
    def output(self) -> Output: ...
    @property
    def device(self) -> torch.device: ...
    def __call__(self, images: Tensor) -> Tensor: ...


Gives = Literal["scores", "partial", "label"]


@dataclass(frozen=True)
class Traits:
    """What a victim says of itself beyond what `Victim` demands; read with `traits`.

    Attributes:
        randomised: the same image may get another answer the next time.
        gives: all scores, those of the best classes only (the rest are 0), or the label only
            (one score of 1).
        classes: names of the classes.
        shape: (channels, height, width) of its images, if fixed.
        framing: a `brusle.data.Framing` that brings photographs to that shape.
    """

    randomised: bool = False
    gives: Gives = "scores"
    classes: Sequence[str] | None = None
    shape: tuple[int, int, int] | None = None
    framing: Any = None


def traits(victim: Victim) -> Traits:
    """The traits of ``victim``; what it does not say has the usual value."""
    said = {f.name: getattr(victim, f.name) for f in fields(Traits) if hasattr(victim, f.name)}
    return Traits(**said)


def put(victim: Victim, images: Tensor, keys: Tensor) -> Tensor:
    """Ask ``victim``; if it draws random numbers, they are a function of the ``(n,)`` ``keys``.

    A randomised victim that wants its answers to be reproducible has a method
    ``draw(images, keys)``; one without is called, and the same seed may give another result.
    """
    draw: Callable[[Tensor, Tensor], Tensor] | None = getattr(victim, "draw", None)
    return victim(images) if draw is None else draw(images, keys)


class BudgetError(BrusleError):
    """An attack asked for more queries than it was given: a bug in that attack."""


@dataclass
class Ledger:
    """Queries per problem, by what they were for. The budget covers ``initial + search``."""

    clean: Tensor
    initial: Tensor
    search: Tensor
    verify: Tensor
    lost: Tensor

    @classmethod
    def empty(cls, problems: int) -> Ledger:
        """A ledger of zeros."""
        return cls(*(torch.zeros(problems, dtype=torch.int64) for _ in COLUMNS))

    @property
    def attack(self) -> Tensor:
        """``(n,)`` queries that the attack itself has spent."""
        return self.initial + self.search

    @property
    def total(self) -> Tensor:
        """``(n,)`` answered queries of all kinds."""
        return self.clean + self.attack + self.verify

    def row(self, problem: int) -> dict[str, int]:
        """One problem's entries by name."""
        return {column: int(getattr(self, column)[problem]) for column in COLUMNS}


@dataclass
class Answers:
    """What the victim said to one batch.

    Attributes:
        scores: ``(n, classes)``; NaN in the rows that have an error.
        errors: position in the batch to the reason why it has no scores.
    """

    scores: Tensor
    errors: dict[int, str] = field(default_factory=dict)

    @property
    def labels(self) -> Tensor:
        """``(n,)`` predicted labels; meaningless in the rows that have an error."""
        return self.scores.argmax(1)


class Oracle:
    """Puts images to a victim in batches, counts them, and refuses to exceed the budget.

    Args:
        victim: the model under test.
        problems: how many problems there are; the ledger has a row for each.
        limit: hard limit on ``initial + search`` queries of each problem.
        batch_size: most images in one call of the victim.
        eot: answers that are averaged for every image; more than 1 for randomised victims only.
        streams: ``(problems,)`` keys from `rng.streams` that a victim's noise depends on.
    """

    def __init__(
        self,
        victim: Victim,
        problems: int,
        limit: int,
        batch_size: int,
        eot: int = 1,
        streams: Tensor | None = None,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}: it must be at least 1")
        if eot < 1:
            raise InputError(f"eot is {eot}: it must be at least 1")
        if eot > 1 and not traits(victim).randomised:
            raise InputError(
                f"eot is {eot}, but {victim.name} is not randomised and would give the same answer "
                f"{eot} times: leave it at 1, or declare the victim with randomised=True"
            )
        self.victim = victim
        self.limit = limit
        self.batch_size = batch_size
        self.eot = eot
        self.ledger = Ledger.empty(problems)
        self.classes: int | None = None
        nobody = torch.arange(problems)
        self._streams = rng.streams(0, nobody) if streams is None else streams
        self._draws = torch.zeros(problems, dtype=torch.int64)
        self._keyed = hasattr(victim, "draw")

    def ask(self, rows: Tensor, images: Tensor, columns: Sequence[Column] | Column) -> Answers:
        """Query ``images``, one for each problem in ``rows``: `eot` draws, averaged.

        Args:
            rows: ``(n,)`` problem numbers, all different, on the CPU.
            images: ``(n, c, h, w)``.
            columns: what the queries are for, one for all or one each.
        """
        shares = _shares(columns)
        for column, mine in shares.items():
            over = self.ledger.attack[rows[mine]] + self.eot > self.limit
            if column in ("initial", "search") and bool(over.any()):
                problem = int(rows[mine][over][0])
                raise BudgetError(f"problem {problem} has spent its {self.limit} queries")
        answers = self._draw(rows, images, shares)
        for _ in range(self.eot - 1):
            more = self._draw(rows, images, shares)
            answers = Answers(answers.scores + more.scores, answers.errors | more.errors)
        return answers if self.eot == 1 else Answers(answers.scores / self.eot, answers.errors)

    def ask_once(self, rows: Tensor, images: Tensor, column: Column) -> Answers:
        """Query with a single draw, whatever `eot` says: what a user of the victim would see."""
        return self._draw(rows, images, _shares(column))

    def _draw(self, rows: Tensor, images: Tensor, shares: dict[Column, Tensor | slice]) -> Answers:
        """One answer for each image, in batches, and booked."""
        keys = rows
        if self._keyed:
            keys = rng.seeds(self._streams[rows], self._draws[rows])
            self._draws[rows] += 1
        parts = (torch.split(part, self.batch_size) for part in (rows, images, keys))
        answers = _join([self._ask_some(*batch) for batch in zip(*parts, strict=True)])
        answered = torch.ones(len(rows), dtype=torch.int64)
        answered[list(answers.errors)] = 0
        for column, mine in shares.items():
            getattr(self.ledger, column)[rows[mine]] += answered[mine]
        return answers

    def _ask_some(self, rows: Tensor, images: Tensor, keys: Tensor) -> Answers:
        """One call; if it raises, halve until the guilty images are found."""
        try:
            scores = put(self.victim, images.to(self.victim.device), keys)
        except BrusleError:
            raise
        except torch.OutOfMemoryError as error:
            raise VictimError(
                f"{self.victim.name} ran out of memory on {len(rows)} images: give a smaller "
                f"batch_size than {self.batch_size}"
            ) from error
        except Exception as error:
            self.ledger.lost[rows] += 1
            if len(rows) == 1:
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                blank = torch.full((1, self.classes or 0), torch.nan, device=self.victim.device)
                return Answers(blank, {0: f"the victim raised {reason}"})
            half = (len(rows) + 1) // 2
            parts = (torch.split(part, half) for part in (rows, images, keys))
            return _join([self._ask_some(*part) for part in zip(*parts, strict=True)])
        self._check_shape(scores, len(rows))
        bad = (~scores.isfinite()).any(1)
        if not bad.any():
            return Answers(scores)
        reason = "the victim answered NaN or infinite scores"
        self.ledger.lost[rows[bad.cpu()]] += 1
        scores = scores.masked_fill(bad[:, None], torch.nan)
        return Answers(scores, {int(at): reason for at in bad.nonzero()[:, 0]})

    def _check_shape(self, scores: Tensor, count: int) -> None:
        if scores.dim() != 2 or scores.shape[0] != count or scores.shape[1] < 2:
            raise VictimError(
                f"{self.victim.name} answered {count} images with shape {tuple(scores.shape)}: "
                f"scores must be ({count}, classes) with at least 2 classes"
            )
        if self.classes is None:
            self.classes = scores.shape[1]
        if scores.shape[1] != self.classes:
            raise VictimError(
                f"{self.victim.name} answered with {self.classes} classes before and "
                f"{scores.shape[1]} now: the number of classes must not change"
            )


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
    classes = max(part.scores.shape[1] for part in parts)
    scores: list[Tensor] = []
    errors: dict[int, str] = {}
    start = 0
    for part in parts:
        count, known = part.scores.shape
        scores.append(part.scores if known else part.scores.new_full((count, classes), torch.nan))
        errors |= {start + at: reason for at, reason in part.errors.items()}
        start += count
    return Answers(torch.cat(scores), errors)
