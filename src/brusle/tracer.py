"""Keeps traces of a session: watches it round by round (``on_round``), and changes nothing.

No query, no random number and no result depends on whether somebody watches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from brusle.problems import Dense, Problems
from brusle.scores import ABSENT, Scores
from brusle.tracing import HELD, POINTS, SIDE, TOP, Belief, Improvement, Trace, halved, thinned

if TYPE_CHECKING:
    from brusle.results import AttackResult
    from brusle.search import Round

OnImproved = Callable[[int, Improvement], None]
_MARKS = (5, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)  # queries after which there is a map


class Tracer:
    """`note` is an ``on_round``, and `finish` says what was seen of a problem."""

    def __init__(
        self, problems: Problems, clean: Scores, on_improved: OnImproved | None = None
    ) -> None:
        """Begin to watch.

        Args:
            problems: what is attacked.
            clean: the answers to the clean images.
            on_improved: called with the number of a problem and each of its improvements at once,
                the clean image first.
        """
        self._problems, self._clean, self._on_improved = problems, clean, on_improved
        self._notes: dict[int, _Notes] = {}

    def note(self, seen: Round) -> None:
        """Keep what a round has shown."""
        rows, queries = seen.rows.tolist(), seen.queries.tolist()
        notes = [self._notes_on(row) for row in rows]
        losses = seen.loss.tolist()
        for mine, query, loss in zip(notes, queries, losses, strict=True):
            mine.queries.append(query)
            mine.losses.append(loss)
        reached = seen.feedback.reached.tolist()
        self._keep_improvements(seen, notes, reached)
        if seen.attack.behaviour.believes:
            over = [r or q >= seen.attack.queries for r, q in zip(reached, queries, strict=True)]
            _keep_beliefs(seen, notes, over, self._problems.shape)

    def finish(self, row: int, result: AttackResult) -> Trace | None:
        """What was seen of a problem, whose result is final; None if it was not attacked."""
        notes = self._notes.pop(row, None) or _Notes()
        if not int(result.queries[row]):
            return None
        found = notes.found()
        final = self._final(row, result)
        last = found[-1] if found else None
        if last is None or not _same_image(last, final):  # a starting image, or an earlier search's
            found.append(final)
        return Trace(
            self._problems.shape,
            notes.meaning if notes.beliefs else "",
            tuple(thinned([self._before(row), *found])),
            *_points(notes.queries, notes.losses),
            tuple(notes.beliefs[query] for query in sorted(notes.beliefs)),
        )

    def _keep_improvements(self, seen: Round, notes: Sequence[_Notes], reached: list[bool]) -> None:
        which = seen.kept.nonzero()[:, 0]
        if not len(which):
            return
        candidates = seen.candidates.pick(which)
        rows = seen.rows[which.cpu()]
        by_label = seen.attack.behaviour.needs == "labels"
        best = tops(_picked(seen.feedback.scores, which), 1 if by_label else TOP)
        if isinstance(candidates, Dense):
            changes = [
                _changes(self._problems.images[row], pixels.T)
                for row, pixels in zip(rows.tolist(), candidates.pixels.cpu(), strict=True)
            ]
        else:
            index, colour = candidates.index.cpu(), candidates.colour.cpu()
            own = _colours_at(self._problems.images[rows], index)
            changes = _edited(index, colour, (own != colour).any(2))
        for at, change, top in zip(which.tolist(), changes, best, strict=True):
            mine = notes[at]
            found = Improvement(mine.queries[-1], seen.number, mine.losses[-1], *change, *top)
            if mine.add(found, firm=reached[at]) and self._on_improved is not None:
                self._on_improved(int(seen.rows[at]), found)

    def _final(self, row: int, result: AttackResult) -> Improvement:
        scores = Scores(result.scores[row][None], self._clean.meaning)
        facts = (int(result.queries[row]), 0, float(result.losses[row]))
        return self._improvement(row, *facts, result.images[row].flatten(1), scores)

    def _improvement(
        self, row: int, query: int, search: int, loss: float, image: Tensor, scores: Scores
    ) -> Improvement:
        change = _changes(self._problems.images[row], image)
        return Improvement(query, search, loss, *change, *tops(scores, TOP)[0])

    def _notes_on(self, row: int) -> _Notes:
        if row not in self._notes:
            self._notes[row] = _Notes()
            if self._on_improved is not None:
                self._on_improved(row, self._before(row))
        return self._notes[row]

    def _before(self, row: int) -> Improvement:
        """The clean image."""
        image, scores = self._problems.images[row].flatten(1), _row(self._clean, row)
        return self._improvement(row, 0, 0, math.nan, image, scores)


@dataclass
class _Notes:
    """What is written down about one problem."""

    queries: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    beliefs: dict[int, Belief] = field(default_factory=dict)
    meaning: str = ""
    marks: int = 0  # of `_MARKS`, how many are behind
    _found: list[Improvement] = field(default_factory=list)
    _tail: Improvement | None = None  # what would be returned, though it is no improvement
    _held: int = 0

    def add(self, one: Improvement, firm: bool) -> bool:
        """A candidate was kept; ``firm`` if it reached the goal. Whether it is an improvement."""
        last = self._found[-1] if self._found else None
        new = last is None or last.search != one.search
        if not (firm or new or (last is not None and one.loss < last.loss)):
            self._tail = one
            return False
        self._found.append(one)
        self._tail = None
        self._held += len(one.positions)
        if self._held > HELD:
            self._found = halved(self._found)
            self._held = sum(len(each.positions) for each in self._found)
        return True

    def found(self) -> list[Improvement]:
        """The improvements, in their order."""
        return self._found + ([] if self._tail is None else [self._tail])

    def passes_mark(self, query: int) -> bool:
        """Whether a map is due."""
        due = self.marks < len(_MARKS) and query >= _MARKS[self.marks]
        while self.marks < len(_MARKS) and query >= _MARKS[self.marks]:
            self.marks += 1
        return due


def _keep_beliefs(
    seen: Round, notes: Sequence[_Notes], over: Sequence[bool], shape: tuple[int, int, int]
) -> None:
    """Maps of the problems for which one is due, or that are over."""
    due = [mine.passes_mark(mine.queries[-1]) for mine in notes]
    which = [at for at in range(len(notes)) if due[at] or over[at]]
    if not which:
        return
    for at, belief in zip(which, beliefs(seen, which, shape), strict=True):
        mine = notes[at]
        mine.meaning = seen.attack.behaviour.believes
        mine.beliefs[belief.query] = belief


def beliefs(seen: Round, which: Sequence[int], shape: tuple[int, int, int]) -> list[Belief]:
    """What a search has learned about some of the problems of a round.

    Args:
        seen: the round, of a search whose belief has a meaning.
        which: their places in it.
        shape: of the images.
    """
    _, h, w = shape
    values = seen.search.pick(torch.tensor(which)).belief().view(-1, 1, h, w)
    pooled = adaptive_avg_pool2d(values.float(), (min(h, SIDE), min(w, SIDE)))[:, 0].cpu().numpy()
    queries = seen.queries[list(which)].tolist()
    return [Belief.of(query, each) for query, each in zip(queries, pooled, strict=True)]


def _edited(
    index: Tensor, colour: Tensor, changed: Tensor
) -> list[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """Positions, rising and each once, and levels of edits, where they change anything."""
    levels = (colour * 255).round().to(torch.uint8).numpy()
    found = []
    for mine, its_levels, its_changed in zip(index.numpy(), levels, changed.numpy(), strict=True):
        positions, first = np.unique(mine[its_changed], return_index=True)
        found.append((positions, its_levels[its_changed][first]))
    return found


def _changes(original: Tensor, image: Tensor) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The same of a whole ``(c, h * w)`` image."""
    changed = (original.flatten(1) != image).any(0).nonzero()[:, 0]
    levels = (image[:, changed] * 255).round().to(torch.uint8).T.contiguous()
    return changed.numpy(), levels.numpy()


def _colours_at(images: Tensor, index: Tensor) -> Tensor:
    """``(n, k, c)``: colours of the pixels ``index``."""
    flat = images.flatten(2)
    return flat.gather(2, index[:, None].expand(-1, flat.shape[1], -1)).transpose(1, 2)


def tops(scores: Scores, count: int) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """The best labels of each answer with their shares; labels that it does not name are not."""
    values = scores.values.cpu()
    shares = values.double() if count == 1 else scores.meaning.named_shares(values)
    best = shares.topk(min(count, shares.shape[1]), 1)
    found = []
    for values_of, labels in zip(best.values.numpy(), best.indices.numpy(), strict=True):
        named = values_of > ABSENT  # and no NaN
        found.append((labels[named], values_of[named].round(6)))
    return found


def _picked(scores: Scores, which: Tensor) -> Scores:
    return Scores(scores.values[which], scores.meaning)


def _row(scores: Scores, row: int) -> Scores:
    return Scores(scores.values[row][None], scores.meaning)


def _points(
    queries: Sequence[int], losses: Sequence[float]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """At most `POINTS` of them, with the first and the last."""
    kept = range(len(queries))
    if len(queries) > POINTS:
        kept = np.linspace(0, len(queries) - 1, POINTS).round().astype(int).tolist()
    rounded = [float(f"{losses[at]:.5g}") for at in kept]
    return np.array([queries[at] for at in kept], dtype=np.int64), np.array(rounded)


def _same_image(one: Improvement, other: Improvement) -> bool:
    return np.array_equal(one.positions, other.positions) and np.array_equal(
        one.levels, other.levels
    )
