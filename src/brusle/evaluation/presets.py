"""Presets: every table of the BruSLe paper as an evaluation that can be run.

They are data, in ``presets.yaml`` beside this file. A preset is called like its table in
`brusle.evaluation.paper`, and has a part for each model of the table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from brusle.errors import InputError
from brusle.evaluation.pairs import Targets
from brusle.evaluation.paper import PaperNumber, paper_results, pixels_of, tables
from brusle.evaluation.plan import Plan
from brusle.evaluation.store import GoalName
from brusle.names import hint

Metric = Literal["asr", "accuracy", "mean sparsity"]
FEW_TARGETS = 3
OVER_SEEDS = ("min", "mean", "max", "std")
_FEW_PIXELS = re.compile(r"(\d+) pixels")  # how the paper's table of few pixels is stored
_STRICT = ConfigDict(extra="forbid", frozen=True)


class Entry(BaseModel):
    """One attack of a table.

    Attributes:
        attack: the attack, as `brusle.attacks.make` takes it.
        paper: what the paper calls it.
        variant: which of several configurations, as in `PaperNumber`.
    """

    model_config = _STRICT

    attack: str
    paper: str
    variant: str = ""

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.paper}, {self.variant}" if self.variant else self.paper


class Part(BaseModel):
    """One model of a table, and how it is attacked.

    Attributes:
        name: what the part is called.
        model: the paper's model.
        victim: what stands in for it; None if nothing can.
        own: how the paper's own model would be named, for people who have it.
        defences: defences before the victim, the innermost first.
        goal: targeted or untargeted.
        targets: targets per image.
        images: how many images the paper attacks; None is all that are classified correctly.
        pixels: pixel budgets.
        marks: numbers of queries that the table speaks of; the largest is the limit.
        seeds: every attack runs once for each; with several, the table is about their spread.
        metric: as in `PaperNumber`.
        entries: the attacks.
    """

    model_config = _STRICT

    name: str
    model: str
    victim: str | None = None
    own: str
    defences: tuple[str, ...] = ()
    goal: GoalName
    targets: PositiveInt | Literal["all"] = 1
    images: PositiveInt | None
    pixels: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    marks: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (0,)
    metric: Metric = "asr"
    entries: Annotated[tuple[Entry, ...], Field(min_length=1)]

    @property
    def behind(self) -> str:
        """The defences, for people."""
        return f" behind {', '.join(self.defences)}" if self.defences else ""

    def scaled(
        self,
        limit: int | None = None,
        queries: int | None = None,
        pixels: Sequence[int] = (),
        seed: int = 0,
        targets: Targets | None = None,
    ) -> Part:
        """The part with less to do.

        Args:
            limit: most images.
            queries: the query limit; marks above it are left out, and if none is left, it is the
                only mark.
            pixels: other pixel budgets.
            seed: added to all seeds.
            targets: targets of each image; None is the paper's number, but few if there is a limit
                of images: targets of one image are so alike that more say little more.
        """
        if targets is None:
            targets = self.targets
            if limit is not None and (targets == "all" or targets > FEW_TARGETS):
                targets = FEW_TARGETS
        images = self.images
        if limit is not None:
            images = limit if images is None else min(limit, images)
        marks = self.marks
        if queries is not None:
            marks = tuple(mark for mark in marks if mark <= queries) or (queries,)
        return self.model_copy(
            update={
                "images": images,
                "targets": targets,
                "marks": marks,
                "pixels": tuple(pixels) or self.pixels,
                "seeds": tuple(seed + own for own in self.seeds),
            }
        )

    def plans(self, victim: str, data: str) -> tuple[Plan, ...]:
        """The part as plans of evaluations.

        It is one, with the largest mark as the limit, unless the table is about the final images:
        these are stored at the limit only, so every mark is a limit.
        """
        limits = self.marks if self.metric == "mean sparsity" else (max(self.marks),)
        values = {
            "victim": victim,
            "defences": self.defences,
            "data": data,
            "limit": self.images,
            "targets": self.targets,
            "goals": (self.goal,),
            "attacks": tuple(entry.attack for entry in self.entries),
            "pixels": self.pixels,
            "seeds": self.seeds,
        }
        return tuple(Plan.of(values | {"queries": limit}, self.name) for limit in limits)


class Preset(BaseModel):
    """A table of the paper.

    Attributes:
        name: the name of the table.
        summary: a line about it.
        dataset: as the paper calls it.
        parts: one for each model.
        refused: why it cannot be run; None if it can.
    """

    model_config = _STRICT

    name: str
    summary: str
    dataset: str
    parts: tuple[Part, ...] = ()
    refused: str | None = None

    @model_validator(mode="after")
    def _of_the_paper(self) -> Preset:
        """Names must be the paper's, or its numbers would silently be missing."""
        table = next((t for t in tables() if t.name == self.name), None)
        if table is None:
            raise ValueError(f"{self.name} is no table of the paper")
        unknown = {part.model for part in self.parts} - set(table.models)
        if table.dataset != self.dataset or unknown:
            raise ValueError(f"{self.name} is about {table.models} on {table.dataset}")
        if bool(self.parts) == (self.refused is not None):
            raise ValueError(f"{self.name} must have parts, or a reason for having none")
        return self

    def part(self, name: str) -> Part:
        """The part called ``name``."""
        known = {part.name: part for part in self.parts}
        if name not in known:
            raise InputError(f"{self.name} has no part {name!r}{hint(name, known)}")
        return known[name]

    def paper(self, part: Part, entry: Entry, pixels: int, queries: int) -> float | None:
        """The paper's number; None if it has none at so many pixels and queries."""
        for number in paper_results(self.name, model=part.model, attack=entry.paper):
            variant, budget = _place(number)
            if (variant, number.queries) == (entry.variant, queries) and budget in (None, pixels):
                return number.value
        return None


def presets() -> dict[str, Preset]:
    """All presets by name."""
    return dict(_all())


def preset(name: str) -> Preset:
    """The preset called ``name``."""
    if name not in _all():
        raise InputError(f"unknown preset {name!r}{hint(name, _all())}")
    return _all()[name]


def seeds_entry(entry: Entry, seeds: int, which: str) -> Entry:
    """The entry of the paper's table for one statistic over seeds."""
    return entry.model_copy(update={"variant": f"{seeds} seeds: {which}"})


def _place(number: PaperNumber) -> tuple[str, int | None]:
    """The variant and the pixel budget of a number; no budget if it is about none."""
    few = _FEW_PIXELS.fullmatch(number.variant)
    if few:
        return "", int(few[1])
    percent = number.sparsity_percent
    return number.variant, None if percent is None else pixels_of(number.dataset, percent)


@cache
def _all() -> dict[str, Preset]:
    text = files("brusle.evaluation").joinpath("presets.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text)["presets"]
    return {name: Preset(name=name, **values) for name, values in found.items()}
