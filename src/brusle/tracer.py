"""Keeps traces of a session: watches it round by round (``on_round``), and changes nothing.

No query, no random number and no result depends on whether somebody watches. While the attack runs,
little is done: candidates are kept as they were asked, and read when their problem is finished, all
of it at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d
from torch.nn.utils.rnn import pad_sequence

from brusle.problems import Candidates, Dense, Problems
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
        self._problems, self._on_improved = problems, on_improved
        self._meaning, self._clean = clean.meaning, tops(clean, TOP)
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
        *found, final = self._read(row, [*notes.found(), self._final(row, result)])
        if not found or not _same_image(found[-1], final):  # a start, or an earlier search's
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
        rows = seen.rows[which.cpu()].tolist()
        labels = 1 if seen.attack.behaviour.needs == "labels" else TOP
        scores = seen.feedback.scores.values[which].cpu()
        edits = self._edits(seen.candidates.pick(which), rows)
        for at, row, edit, answer in zip(which.tolist(), rows, edits, scores, strict=True):
            mine = notes[at]
            facts = mine.queries[-1], seen.number, mine.losses[-1]
            found = _Kept(*facts, *edit, answer, labels)
            if mine.add(found, firm=reached[at]) and self._on_improved is not None:
                self._on_improved(row, *self._read(row, [found]))

    def _edits(
        self, candidates: Candidates, rows: Sequence[int]
    ) -> Iterable[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Pixels and colours that make the image of each candidate of the original."""
        if isinstance(candidates, Dense):
            images = self._problems.images
            pairs = zip(rows, candidates.pixels.cpu(), strict=True)
            return [_changes(images[row], pixels.T) for row, pixels in pairs]
        index, colour = candidates.index.cpu().numpy(), candidates.colour.cpu().numpy()
        return zip(index, colour, strict=True)

    def _read(self, row: int, kept: Sequence[_Kept]) -> list[Improvement]:
        """Candidates of a problem as improvements: what they change, and what the victim said."""
        own = self._problems.images[row].flatten(1).T.numpy()
        found = []
        for labels, group in groupby(kept, attrgetter("labels", "pixels")):
            some = list(group)
            # labels that came up later were absent before
            answers = pad_sequence([one.scores for one in some], True, ABSENT)
            best = tops(Scores(answers, self._meaning), labels[0])
            for one, change, top in zip(some, _changed(own, some), best, strict=True):
                found.append(Improvement(one.query, one.search, one.loss, *change, *top))
        return found

    def _final(self, row: int, result: AttackResult) -> _Kept:
        facts = int(result.queries[row]), 0, float(result.losses[row])
        edit = _changes(self._problems.images[row], result.images[row].flatten(1))
        return _Kept(*facts, *edit, result.scores[row].cpu(), TOP)

    def _notes_on(self, row: int) -> _Notes:
        if row not in self._notes:
            self._notes[row] = _Notes()
            if self._on_improved is not None:
                self._on_improved(row, self._before(row))
        return self._notes[row]

    def _before(self, row: int) -> Improvement:
        """The clean image."""
        levels = np.zeros((0, self._problems.shape[0]), np.uint8)
        return Improvement(0, 0, math.nan, np.zeros(0, np.int64), levels, *self._clean[row])


@dataclass(frozen=True, slots=True)
class _Kept:
    """A candidate as it was asked and answered; an `Improvement` when it is read."""

    query: int
    search: int
    loss: float
    index: NDArray[np.int64]
    colour: NDArray[np.float32]
    scores: Tensor
    labels: int  # how many of the best are wanted

    @property
    def pixels(self) -> int:
        """That it may change."""
        return len(self.index)


@dataclass
class _Notes:
    """What is written down about one problem."""

    queries: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    beliefs: dict[int, Belief] = field(default_factory=dict)
    meaning: str = ""
    mark: float = _MARKS[0]  # when the next map is due
    _found: list[_Kept] = field(default_factory=list)
    _tail: _Kept | None = None  # what would be returned, though it is no improvement
    _held: int = 0

    def add(self, one: _Kept, firm: bool) -> bool:
        """A candidate was kept; ``firm`` if it reached the goal. Whether it is an improvement."""
        last = self._found[-1] if self._found else None
        new = last is None or last.search != one.search
        if not (firm or new or (last is not None and one.loss < last.loss)):
            self._tail = one
            return False
        self._found.append(one)
        self._tail = None
        self._held += one.pixels
        if self._held > HELD:
            self._found = halved(self._found)
            self._held = sum(each.pixels for each in self._found)
        return True

    def found(self) -> list[_Kept]:
        """The improvements, in their order."""
        return self._found + ([] if self._tail is None else [self._tail])

    def add_belief(self, belief: Belief, meaning: str) -> None:
        """A map, and when the next one is due."""
        self.meaning, self.beliefs[belief.query] = meaning, belief
        self.mark = next((mark for mark in _MARKS if mark > belief.query), math.inf)


def _keep_beliefs(
    seen: Round, notes: Sequence[_Notes], over: Sequence[bool], shape: tuple[int, int, int]
) -> None:
    """Maps of the problems for which one is due, or that are over."""
    pairs = enumerate(zip(notes, over, strict=True))
    which = [at for at, (mine, ended) in pairs if ended or mine.queries[-1] >= mine.mark]
    if not which:
        return
    for at, belief in zip(which, beliefs(seen, which, shape), strict=True):
        notes[at].add_belief(belief, seen.attack.behaviour.believes)


def beliefs(seen: Round, which: Sequence[int], shape: tuple[int, int, int]) -> list[Belief]:
    """What a search has learned about some of the problems of a round.

    Args:
        seen: the round, of a search whose belief has a meaning.
        which: their places in it.
        shape: of the images.
    """
    _, h, w = shape
    values = seen.search.pick(_rows(which)).belief().view(-1, 1, h, w)
    pooled = adaptive_avg_pool2d(values.float(), (min(h, SIDE), min(w, SIDE)))[:, 0].cpu().numpy()
    queries = seen.queries[list(which)].tolist()
    return [Belief.of(query, each) for query, each in zip(queries, pooled, strict=True)]


def _rows(which: Sequence[int]) -> Tensor | slice:
    """Places of a batch; neighbours as a slice, for which nothing is copied."""
    first, end = which[0], which[-1] + 1
    return slice(first, end) if len(which) == end - first else torch.tensor(which)


def _changes(original: Tensor, image: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Pixels of a ``(c, h * w)`` image that are not the original's, rising, and their colours."""
    changed = (original.flatten(1) != image).any(0).nonzero()[:, 0]
    return changed.numpy(), image[:, changed].T.contiguous().numpy()


def _changed(
    own: NDArray[np.float32], kept: Sequence[_Kept]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """Positions, rising and each once, and levels of as many edits, where they change anything."""
    index, colour = np.stack([one.index for one in kept]), np.stack([one.colour for one in kept])
    order = index.argsort(1)
    index = np.take_along_axis(index, order, 1)
    colour = np.take_along_axis(colour, order[:, :, None], 1)
    changes = (own[index] != colour).any(2)
    changes[:, 1:] &= index[:, 1:] != index[:, :-1]
    levels = (colour * 255).round().astype(np.uint8)
    for positions, its_levels, which in zip(index, levels, changes, strict=True):
        yield positions[which], its_levels[which]


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
