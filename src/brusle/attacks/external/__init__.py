"""Attacks of others under brusle's ledger: any function that asks a model and returns an image.

    def attack(model, x, y, targets):  # x is (1, c, h, w), y and targets (1,), targets may be None
        ...
        scores = model(images)  # each image is a query
        ...
        return x_adv

The function runs on one image at a time, and its questions go through the oracle like those of
every attack: counted, limited, answered together with those of other images. What counts is what it
has asked for, and the image that it returns. The first adversarial image within the budget of
pixels ends it. When its queries are spent, an exception ends it (`brusle.attacks.external.talk`).

Its global random numbers are functions of seed, problem and restart, and the process has its own
again afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from inspect import isfunction
from typing import Any, Literal

import torch
from torch import Tensor

from brusle import rng
from brusle.attacks.base import SparseAttack
from brusle.attacks.external.model import Arrays, Asking, Model, Output, numbers_of
from brusle.attacks.external.talk import Talk
from brusle.errors import InputError
from brusle.problems import Dense, Problems
from brusle.rows import Rows
from brusle.scores import Scores
from brusle.search import Behaviour, Feedback, Search

Function = Callable[..., Any]
Goals = Literal["both", "untargeted", "targeted"]
_SEED = rng.purpose("external: seed")


@dataclass(frozen=True, init=False)
class External(SparseAttack):
    """A function of somebody else, as an attack.

    Attributes:
        function: ``(model, x, y, targets, **options) -> x_adv``; what it gets as a model is a
            `brusle.attacks.external.model.Model`. It may return None if all that counts was asked
            for.
        pixels: most pixels that may differ from the original.
        queries: most queries per image.
        name: what it is called. Results in a run folder are known by name and options, so that
            functions which differ need names that differ; that of a module's function is its own.
        options: keyword arguments of the function, which gets copies.
        needs: what the victim must give: ``"scores"``, or ``"labels"`` if the function looks at
            nothing but the class on top.
        shrinks: whether the function comes from above, by images with more pixels than the budget:
            then the best is the adversarial image with the fewest. If not, it is the one within the
            budget with the lowest loss, and `brusle.minimise` tries again with smaller budgets.
        levels: round colours to 8-bit levels before they are asked for, so that no success is lost
            when it is saved.
        output: what the function gets of the victim: its own scores, or these as logits or
            probabilities. With ``needs="labels"`` it is 1 for the class on top and 0 for others.
        arrays: whether the function works with ``"torch"`` or ``"numpy"``.
        goals: which goals it knows.
    """

    function: Function = field(kw_only=True, compare=False, repr=False)
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    needs: Literal["scores", "labels"] = "scores"
    shrinks: bool = True
    levels: bool = False
    output: Output = "scores"
    arrays: Arrays = "torch"
    goals: Goals = "both"

    def __init__(
        self,
        function: Function,
        pixels: int,
        queries: int = 500,
        *,
        name: str = "",
        options: Mapping[str, Any] | None = None,
        needs: Literal["scores", "labels"] = "scores",
        shrinks: bool = True,
        levels: bool = False,
        output: Output = "scores",
        arrays: Arrays = "torch",
        goals: Goals = "both",
    ) -> None:
        if not callable(function):
            raise InputError(
                f"function is a {type(function).__name__}: give a function of model, x, y, targets"
            )
        values = {
            "function": function,
            "pixels": pixels,
            "queries": queries,
            "name": name or _name_of(function),
            "options": dict(options or {}),
            "needs": needs,
            "shrinks": shrinks,
            "levels": levels,
            "output": output,
            "arrays": arrays,
            "goals": goals,
        }
        for field_name, value in values.items():
            object.__setattr__(self, field_name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, value in self.options.items():
            if " at 0x" in repr(value):
                raise InputError(
                    f"option {option} of {self.name} is {value!r}, which is another each time the "
                    f"program runs: give a plain value, or set it in a function with a name="
                )

    @property
    def label(self) -> str:
        """Its name, with what was chosen."""
        chosen = [f"{option}={value}" for option, value in self.options.items()]
        return " ".join([self.name, *chosen, *(["levels=True"] if self.levels else [])])

    @property
    def behaviour(self) -> Behaviour:
        """Whole images, of which nobody knows how many pixels they change."""
        return Behaviour(needs=self.needs, dense=True, shrinks=self.shrinks)

    def check(self, problems: Problems) -> None:
        """Raise if the budget does not fit the images, or the function does not know the goal."""
        super().check(problems)
        goal = "untargeted" if problems.targets is None else "targeted"
        if self.goals not in ("both", goal):
            raise InputError(f"{self.name} knows {self.goals} attacks only: leave {goal} ones out")

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Prepare a talk about each problem; the functions run when the search begins."""
        streams = rng.streams(seed, problems.ids, restart).cpu()
        seeds = rng.bits(streams, 0, _SEED, 1)[:, 0].tolist()
        talks = [self._talk(problems[[at]], seed) for at, seed in enumerate(seeds)]
        original = problems.flat_images
        return _ExternalSearch(self, original, original.clone(), Talks(talks))

    def _talk(self, problem: Problems, seed: int) -> Talk:
        output = "scores" if self.needs == "labels" else self.output
        numbers = partial(numbers_of, output=output)
        return Talk(partial(self._attack, problem, seed), numbers, seed)

    def _attack(self, problem: Problems, seed: int, talk: Talk) -> Tensor | None:
        """Run the function on one problem; return its image if it is one."""
        asking = Asking(problem.images, self.arrays, self.levels)
        targets = problem.targets
        model = Model(talk, asking, self.pixels, targets is not None, seed)
        given = [asking.given(problem.images), asking.given(problem.labels)]
        given.append(None if targets is None else asking.given(targets))
        returned = self.function(model, *given, **deepcopy(dict(self.options)))
        if returned is None:
            return None
        (image,) = asking.read(returned)
        return None if torch.equal(image, problem.flat_images[0].cpu()) else image


class Talks(Rows):
    """A talk for each problem."""

    def __init__(self, talks: list[Talk]) -> None:
        self.talks = talks

    def pick(self, rows: Tensor | slice) -> Talks:
        """Those of some problems."""
        if isinstance(rows, slice):
            return Talks(self.talks[rows])
        return Talks([self.talks[at] for at in rows.tolist()])

    def replace(self, rows: Tensor, fresh: Rows) -> None:
        """Let others take the places ``rows``."""
        assert isinstance(fresh, Talks)
        for at, talk in zip(rows.tolist(), fresh.talks, strict=True):
            self.talks[at] = talk


@dataclass
class _ExternalSearch(Search):
    attack: External
    original: Tensor  # (n, h * w, c)
    candidate: Tensor  # (n, h * w, c)
    talks: Talks

    def prepare(self, answers: Tensor, classes: int) -> None:
        """Run all functions up to their first question."""
        try:
            for talk, count in zip(self.talks.talks, answers.tolist(), strict=True):
                talk.begin(count, classes)
        except BaseException:  # Ctrl-C
            self.leave(torch.arange(len(self.talks.talks)))
            raise

    def ask(self, step: Tensor) -> Dense:
        """The next image that each function has asked for."""
        for at, talk in enumerate(self.talks.talks):
            assert talk.question is not None  # or the loop would have let it leave
            self.candidate[at] = talk.question
        return Dense(self.candidate.clone())

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Answer, and let the functions go on whose problems are not done by that."""
        pixels = (self.candidate != self.original).any(2).sum(1)
        last = feedback.reached & (pixels <= self.attack.pixels)
        last |= feedback.loss.isnan()  # the victim has failed
        scores = feedback.scores
        if self.attack.needs == "labels":  # which are no shares of anything
            scores = Scores(scores.values)
        for at, talk in enumerate(self.talks.talks):
            talk.tell(Scores(scores.values[at : at + 1], scores.meaning), bool(last[at]))

    def ended(self) -> dict[int, str]:
        """Functions that have returned, or failed."""
        talks = enumerate(self.talks.talks)
        return {at: talk.fault for at, talk in talks if talk.over}

    def leave(self, places: Tensor) -> None:
        """End the functions of problems that are finished."""
        for talk in self.talks.pick(places).talks:
            talk.end()


def _name_of(function: Function) -> str:
    """The name of a function with that of its module, which no other has."""
    name = getattr(function, "__qualname__", "")
    if not isfunction(function) or "<" in name or function.__closure__:
        raise InputError(
            f"{name or type(function).__name__} has no name that tells it from all others: give "
            f"name=, by which its results are known"
        )
    return f"{function.__module__}.{name}".removeprefix("__main__.")
