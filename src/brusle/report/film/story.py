"""What a film shows, and when."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from brusle.errors import DataError, InputError
from brusle.evaluation.record import Row
from brusle.evaluation.storing.choosing import Chosen, few
from brusle.evaluation.storing.rows import rows_of
from brusle.evaluation.storing.runs import Run
from brusle.outcomes import HIT, ROBUST
from brusle.report.panels import Entry
from brusle.report.panels.labels import Role
from brusle.report.wording import class_name, count
from brusle.results import AttackResult
from brusle.text import brief, shortened
from brusle.tracing import TOP, Belief, Improvement, Trace

_LEAST, _MOST = 1.0, 60.0  # seconds of a film
LINES = 6  # of a list of labels
_RATE = 10  # frames of a second, while something moves
_FRAMES = 150  # of a film, at most
_OPENING, _ENDING = 0.1, 0.3  # of a film: the clean image, and what was found
_TICK = 10  # milliseconds, which a GIF counts in
_MOST_NAMED = 8  # attacks in a message


@dataclass(frozen=True)
class Moment:
    """A frame of a film.

    Attributes:
        query: it shows what was known after so many queries.
        milliseconds: how long it is seen.
    """

    query: int
    milliseconds: int


@dataclass(frozen=True)
class Film:
    """One attack on one image.

    Attributes:
        original: ``(c, h, w)`` in [0, 1].
        trace: what the search found on its way.
        names: of the classes; empty if they have none.
        label: the true one.
        target: label to reach; None if untargeted.
        title: what is attacked, by what.
        ending: what became of it.
        fooled: whether that is a success.
    """

    original: Tensor
    trace: Trace
    names: Sequence[str]
    label: int
    target: int | None
    title: str
    ending: str
    fooled: bool

    @property
    def last(self) -> int:
        """The last query."""
        return max(self.trace.improvements[-1].query, int(self.trace.queries.max(initial=0)))

    def best(self, query: int) -> int:
        """Number of the improvement that was the best after so many queries."""
        if query >= self.last:
            return len(self.trace.improvements) - 1  # what was returned
        return max(i for i, one in enumerate(self.trace.improvements) if one.query <= query)

    def belief(self, query: int) -> Belief | None:
        """What the search had learned by then; None if nothing was noted yet."""
        known = [belief for belief in self.trace.beliefs if belief.query <= query]
        return known[-1] if known else None

    def image(self, query: int) -> Tensor:
        """``(c, h, w)``: the best image after so many queries."""
        return self.trace.image(self.best(query), self.original)

    def moments(self, seconds: float) -> list[Moment]:
        """The frames of a film of so many seconds; the last is held.

        Half of the time goes evenly over the queries and half over the improvements, of which most
        come early.
        """
        if not _LEAST <= seconds <= _MOST:
            raise InputError(f"a film takes {_LEAST:g} to {_MOST:g} seconds, not {seconds:g}")
        frames = min(_FRAMES, max(2, round((1 - _OPENING - _ENDING) * seconds * _RATE)))
        moving = self._queries(np.linspace(0, 1, frames + 1)[1:].tolist())
        shares = [_OPENING, *[(1 - _OPENING - _ENDING) / frames] * frames, _ENDING]
        ends = np.cumsum(shares) / sum(shares) * seconds * 1000 / _TICK
        lengths = np.diff(ends.round().astype(int), prepend=0) * _TICK
        found: list[Moment] = []
        for query, length in zip([0, *moving, self.last], lengths.tolist(), strict=True):
            if found and found[-1].query == query:
                found[-1] = Moment(query, found[-1].milliseconds + length)
            elif length:
                found.append(Moment(query, length))
        return found

    def _queries(self, shares: Sequence[float]) -> list[int]:
        """The queries at which these shares of the way are behind."""
        steps = sorted(one.query for one in self.trace.improvements[1:])
        queries, last = range(self.last + 1), self.last or 1

        def way(query: int) -> float:
            return (bisect_right(steps, query) / len(steps) + query / last) / 2

        return [bisect_left(queries, share - 1e-9, hi=self.last, key=way) for share in shares]

    def entries(self, query: int) -> list[Entry]:
        """Labels with their scores after so many queries, each in the same place in every frame.

        Of many classes a trace has the scores of the best ten: others have at most the lowest of
        these. In a shorter list, what is not named is absent.
        """
        said = self.trace.improvements[self.best(query)]
        scores = dict(said.top)
        found = [self._entry(label, said, scores) for label in self._labels]
        return [entry for entry in found if entry is not None]

    def _entry(self, label: int, said: Improvement, scores: dict[int, float]) -> Entry | None:
        name = class_name(self.names, label)
        role: Role = "true" if label == self.label else "target" if label == self.target else ""
        if label in scores:
            return Entry(name, scores[label], role)
        if len(said.top) >= TOP:
            return Entry(name, min(scores.values()), role, at_most=True)
        # of an attack that sees labels only, nothing is known of the others
        return Entry(name, None, role) if role and len(said.top) > 1 else None

    @cached_property
    def _labels(self) -> list[int]:
        """Which labels are shown, in their order: the true one, the target, the highest ones."""
        highest: dict[int, float] = {}
        for one in self.trace.improvements:
            for label, score in one.top:
                highest[label] = max(score, highest.get(label, score))
        others = sorted(highest, key=lambda label: -highest[label])
        ends = [one.top[0][0] for one in (self.trace.improvements[-1],) if one.top]
        aims = [] if self.target is None else [self.target]
        return list(dict.fromkeys([self.label, *aims, *ends, *others]))[:LINES]

    @property
    def whole(self) -> float:
        """The score of a bar of full length."""
        scores = [score for one in self.trace.improvements for _, score in one.top]
        return max([1.0, *scores])


def traced(run: Run, chosen: Sequence[Chosen], one_of_many: bool) -> Chosen:
    """The attack that a film is made of; raise if there is none, or if there are several.

    Args:
        run: the run.
        chosen: attacks that fit what was asked for.
        one_of_many: if several do, take one that succeeded.
    """
    known = run.store.traced()
    attacked = [one for one in chosen if one.row.queries > 0]
    found = [one for one in attacked if one.row.problem in known.get(one.setting.number, ())]
    if not found:
        raise DataError(_why_none(chosen))
    if len(found) > 1 and not one_of_many:
        raise InputError(
            f"{len(found)} attacks on {brief(found[0].row.image)} have a trace: choose one with "
            f"{_listed(found)}"
        )
    return few(run, found, 1)[0]


def film_of(run: Run, chosen: Chosen) -> Film:
    """The film of an attack that has a trace (`traced`)."""
    setting, row = chosen.setting, chosen.row
    trace = run.trace(setting, row)
    if trace is None:
        raise DataError(_why_none([chosen]))
    (original,) = run.originals.take([row.image])
    return _film(original, trace, run.classes, row, f"{setting.name} on {run.victim}")


def film_of_result(
    result: AttackResult, names: Sequence[str], image: str, victim: str
) -> Film | None:
    """The film of an attack on one image; None if it was not attacked.

    Args:
        result: of the attack, with a trace.
        names: of the classes.
        image: what the image is called.
        victim: what the victim is called.
    """
    trace = result.traces.get(0)
    if trace is None:
        return None
    (row,) = rows_of(result, [0], [image])
    by = f"{result.attack.label} on {victim}"
    return _film(result.problems.images[0], trace, names, row, by)


def _film(original: Tensor, trace: Trace, names: Sequence[str], row: Row, by: str) -> Film:
    before, after = (class_name(names, label) for label in (row.clean_label, row.final_label))
    aim = "" if row.target is None else f" to {class_name(names, row.target)}"
    fooled = row.status == HIT
    if fooled:
        found = f"{before} \N{RIGHTWARDS ARROW} {after}"
    else:
        found = f"{'not fooled' if row.status == ROBUST else row.status}: {after}"
    return Film(
        original,
        trace,
        names,
        row.label,
        row.target,
        f"{shortened(row.image, 30)}: {class_name(names, row.label)}{aim}, by {by}",
        f"{found}, {count(row.pixels, 'pixel')}, {count(row.queries, 'query')}",
        fooled,
    )


def _why_none(chosen: Sequence[Chosen]) -> str:
    """Why there is no film of these attacks, and how to get one."""
    alone = len({one.row.image for one in chosen}) == 1
    image = brief(chosen[0].row.image)
    if not any(one.row.queries for one in chosen):
        whose = f"{image} was not" if alone else "no image was"
        return f"{whose} attacked, so there is no search to see: choose another"
    whose = f"the attack on {image} was" if alone else "all attacks were"
    return (
        f"{whose} stored without a trace, and stored attacks are not run again: use brusle "
        f"evaluate --trace with another --out"
    )


def _listed(found: Sequence[Chosen]) -> str:
    """Options that tell attacks apart, for a message."""
    numbers = [one.setting.number for one in found]
    settings, targets = len(set(numbers)) > 1, len(set(numbers)) < len(numbers)
    options = []
    for one in found[:_MOST_NAMED]:
        number = f"--setting {one.setting.number}" if settings else ""
        aim = f"--target {one.row.target}" if targets and one.row.target is not None else ""
        said = f" ({shortened(one.setting.title)})" if settings else ""
        options.append(" ".join(filter(None, (number, aim))) + said)
    more = len(found) - len(options)
    return ", or ".join(options) + (f", or one of {more} more" if more else "")
