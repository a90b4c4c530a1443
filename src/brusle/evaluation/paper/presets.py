"""Presets: every table of the BruSLe paper, and figures without one, as evaluations to run.

They are data, in ``presets.yaml`` beside this file. The preset of a table is called like the table
in `results`, and has a part for each of its models. A figure has no numbers to
compare with, but the text claims something about it: its preset carries these claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from brusle.errors import InputError
from brusle.evaluation.paper.results import PaperNumber, paper_results, pixels_of, tables
from brusle.evaluation.record import GoalName
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.storing.manifest import Targets
from brusle.names import hint

Metric = Literal["asr", "accuracy", "mean sparsity", "queries to success"]
Order = Literal["above", "level", "zero"]
FEW_TARGETS = 3
OVER_SEEDS = ("min", "mean", "max", "std")
_FEW_PIXELS = re.compile(r"(\d+) pixels")  # how the paper's table of few pixels is stored
_STRICT = ConfigDict(extra="forbid", frozen=True)


class TableLine(BaseModel):
    """One line of a table: an attack.

    Attributes:
        attack: the attack, as `brusle.attacks.make` takes it.
        paper: what the paper calls it.
        variant: which of several configurations, as in `PaperNumber`.
        queries: its own number of queries, where the paper compares different ones; None is the
            marks of the part.
    """

    model_config = _STRICT

    attack: str
    paper: str
    variant: str = ""
    queries: PositiveInt | None = None

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.paper}, {self.variant}" if self.variant else self.paper

    def within(self, queries: int) -> TableLine:
        """The line with at most so many queries of its own."""
        if self.queries is None or self.queries <= queries:
            return self
        return self.model_copy(update={"queries": queries})


class Claim(BaseModel):
    """What the paper's text says of success rates that it has only a figure of, or none.

    Attributes:
        line: title of the line that it is about.
        order: "above" the other line, "level" with it, or "zero": it never succeeds.
        other: title of the other line; None for "zero".
        pixels: the budgets that it is about; none are all.
    """

    model_config = _STRICT

    line: str
    order: Order
    other: str | None = None
    pixels: tuple[PositiveInt, ...] = ()

    @model_validator(mode="after")
    def _of_one_or_two(self) -> Claim:
        if (self.order == "zero") != (self.other is None):
            raise ValueError(f"{self.line!r}: a claim other than zero is about another line")
        return self

    @property
    def text(self) -> str:
        """For people."""
        if self.other is None:
            return f"{self.line} never succeeds"
        relation = {"above": "above", "level": "level with"}[self.order]
        return f"{self.line} {relation} {self.other}"


class Part(BaseModel):
    """One model of a table, and how it is attacked.

    Attributes:
        name: what the part is called.
        model: the paper's model.
        victim: what stands in for it; None if nothing can.
        service: the model is behind a service of this format, one of `brusle.serving.FORMATS`, and
            so is what stands in for it. Labels and targets are the service's own; the table is
            about single photographs. None of other models.
        own: how the paper's own model would be named, for people who have it.
        defences: defences before the victim, the innermost first.
        goal: targeted or untargeted.
        targets: targets per image.
        images: how many images the paper attacks; None is all that are classified correctly.
        pixels: pixel budgets.
        marks: numbers of queries that the table speaks of; the largest is the limit.
        seeds: every attack runs once for each; with several, the table is about their spread.
        metric: as in `PaperNumber`.
        lines: the attacks.
        claims: what the paper's text says of their order.
    """

    model_config = _STRICT

    name: str
    model: str
    victim: str | None = None
    service: Literal["google-vision"] | None = None
    own: str
    defences: tuple[str, ...] = ()
    goal: GoalName
    targets: PositiveInt | Literal["all"] = 1
    images: PositiveInt | None
    pixels: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    marks: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (0,)
    metric: Metric = "asr"
    lines: Annotated[tuple[TableLine, ...], Field(min_length=1)]
    claims: tuple[Claim, ...] = ()

    @model_validator(mode="after")
    def _claims_about_lines(self) -> Part:
        titles = {line.title for line in self.lines}
        named = {claim.line for claim in self.claims} | {c.other for c in self.claims if c.other}
        if named - titles:
            raise ValueError(f"claims about {sorted(named - titles)}: the lines are {titles}")
        if self.claims and (self.metric != "asr" or len(self.seeds) > 1):
            raise ValueError("claims are about success rates of one seed")
        return self

    @model_validator(mode="after")
    def _photographs_of_services(self) -> Part:
        if (self.service is not None) != (self.metric == "queries to success"):
            raise ValueError("queries to success are those of a service, and of a service they are")
        if self.service is not None and len(self.seeds) * len(self.marks) > 1:
            raise ValueError("photographs are attacked with one seed, and read at the limit")
        return self

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
                only mark. Entries with a number of their own have no more either.
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
        marks, lines = self.marks, self.lines
        if queries is not None:
            marks = tuple(mark for mark in marks if mark <= queries) or (queries,)
            lines = tuple(line.within(queries) for line in lines)
        return self.model_copy(
            update={
                "images": images,
                "targets": targets,
                "marks": marks,
                "lines": lines,
                "pixels": tuple(dict.fromkeys(pixels)) or self.pixels,
                "seeds": tuple(seed + own for own in self.seeds),
            }
        )

    def readings(self) -> Iterator[tuple[TableLine, int]]:
        """The lines with each number of queries that they are read at, in the table's order."""
        for at, mark in enumerate(self.marks):
            for line in self.lines:
                if line.queries is None:
                    yield line, mark
                elif at == 0:
                    yield line, line.queries

    def limit(self, line: TableLine, mark: int) -> int:
        """The query limit of the run that is read at ``mark``.

        One run serves all marks, unless the table is about the final images: these are stored at
        the limit only, so every mark is a limit.
        """
        if self.metric == "mean sparsity":
            return mark
        return max(self.marks) if line.queries is None else line.queries

    def plans(self, victim: str, data: str) -> tuple[Plan, ...]:
        """The part as plans of evaluations, one for each query limit."""
        attacks: dict[int, list[str]] = {}
        for line, mark in self.readings():
            mine = attacks.setdefault(self.limit(line, mark), [])
            if line.attack not in mine:
                mine.append(line.attack)
        values = {
            "victim": victim,
            "defences": self.defences,
            "data": data,
            "limit": self.images,
            "targets": self.targets,
            "goals": (self.goal,),
            "pixels": self.pixels,
            "seeds": self.seeds,
        }
        return tuple(
            Plan.of(values | {"queries": limit, "attacks": tuple(names)}, self.name)
            for limit, names in attacks.items()
        )


class Preset(BaseModel):
    """A table of the paper, or a figure or an observation that has none.

    Attributes:
        name: the name of the table, or one of its own.
        summary: a line about it.
        dataset: as the paper calls it.
        parts: one for each model.
        place: where in the paper it stands; None for a table.
        numbers: a table that has numbers of some of its lines, from the same images and targets;
            None for a table, whose numbers are its own, and where there is none.
    """

    model_config = _STRICT

    name: str
    summary: str
    dataset: str
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]
    place: str | None = None
    numbers: str | None = None

    @model_validator(mode="after")
    def _of_the_paper(self) -> Preset:
        """Names must be the paper's, or its numbers would silently be missing."""
        known = {table.name: table for table in tables()}
        if (self.name in known) != (self.place is None):
            raise ValueError(f"{self.name} must be a table of the paper, or say its place there")
        if self.table is not None:
            if self.table not in known:
                raise ValueError(f"{self.table} is no table of the paper")
            about = known[self.table]
            unknown = {part.model for part in self.parts} - set(about.models)
            if about.dataset != self.dataset or unknown:
                raise ValueError(f"{self.table} is about {about.models} on {about.dataset}")
        if self.place is not None and not all(part.claims for part in self.parts):
            raise ValueError(f"{self.name} has no numbers, so every part must have claims")
        return self

    @property
    def table(self) -> str | None:
        """The paper's table that its numbers are in."""
        return self.name if self.place is None else self.numbers

    def part(self, name: str) -> Part:
        """The part called ``name``."""
        known = {part.name: part for part in self.parts}
        if name not in known:
            raise InputError(f"{self.name} has no part {name!r}{hint(name, known)}")
        return known[name]

    def paper(self, part: Part, line: TableLine, pixels: int, queries: int) -> float | None:
        """The paper's number; None if it has none at so many pixels and queries."""
        if self.table is None:
            return None
        for number in paper_results(self.table):
            variant, budget = _variant_and_pixels(number)
            stated = (number.model, number.attack, variant, number.queries)
            wanted = (part.model, line.paper, line.variant, queries)
            if stated == wanted and budget in (None, pixels):
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


def line_over_seeds(line: TableLine, seeds: int, which: str) -> TableLine:
    """The line of the paper's table for one statistic over seeds."""
    return line.model_copy(update={"variant": f"{seeds} seeds: {which}"})


def _variant_and_pixels(number: PaperNumber) -> tuple[str, int | None]:
    """The variant and the pixel budget of a number; no budget if it is about none."""
    few = _FEW_PIXELS.fullmatch(number.variant)
    if few:
        return "", int(few[1])
    percent = number.sparsity_percent
    return number.variant, None if percent is None else pixels_of(number.dataset, percent)


@cache
def _all() -> dict[str, Preset]:
    text = files("brusle.evaluation.paper").joinpath("presets.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text)["presets"]
    return {name: Preset(name=name, **values) for name, values in found.items()}
