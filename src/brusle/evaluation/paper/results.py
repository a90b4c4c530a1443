"""The numbers of the BruSLe paper, to compare with.

Vo, Abbasnejad, Ranasinghe: BruSLeAttack, ICLR 2024. The numbers are those of its tables, as
printed; they are stored in ``results.csv`` beside this file.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files

from brusle.errors import InputError
from brusle.names import hint


@dataclass(frozen=True)
class PaperNumber:
    """One number of the paper.

    Attributes:
        table: our name of the table.
        dataset: as the paper calls it.
        model: the attacked model.
        setting: "targeted" or "untargeted".
        attack: which attack.
        variant: what else tells the number from others: another configuration, a photograph.
        sparsity_percent: the pixel budget as the paper gives it, see `pixels_of`; None if it is in
            ``variant`` or if there is none.
        queries: the number of queries that the number is about.
        metric: "asr", "accuracy" and "mean sparsity" in percent, or "queries to success".
        value: the number; infinite where an attack did not succeed.
    """

    table: str
    dataset: str
    model: str
    setting: str
    attack: str
    variant: str
    sparsity_percent: float | None
    queries: int
    metric: str
    value: float


@dataclass(frozen=True)
class PaperTable:
    """What a table of the paper is about."""

    name: str
    dataset: str
    models: tuple[str, ...]
    setting: str


_FIELDS = [f.name for f in fields(PaperNumber)]
# The paper's percentages follow no single rounding rule, so they are listed.
_PIXELS: dict[str, dict[float, int]] = {
    "CIFAR-10": {1.0: 10, 2.0: 20, 2.9: 30, 3.9: 40, 0.39: 4, 0.78: 8, 1.17: 12, 1.56: 16},
    "STL-10": {0.11: 10, 0.22: 20, 0.33: 30, 0.44: 40, 0.54: 50},
    "ImageNet": {0.04: 20, 0.08: 40, 0.12: 60, 0.16: 80, 0.2: 100}
    | {0.4: 200, 0.6: 300, 0.8: 400, 1.0: 500},
    "10 photographs": {0.5: 250},
}


def paper_results(table: str | None = None, **filters: str | float | None) -> list[PaperNumber]:
    """Numbers of the paper.

    Args:
        table: name of a table, as in `tables`; None is all of them.
        **filters: values that attributes of `PaperNumber` must have, as in ``attack="BruSLe"``.
    """
    wanted = filters if table is None else {"table": table, **filters}
    for name, value in wanted.items():
        _check_filter(name, value)
    return [
        number
        for number in _all()
        if all(getattr(number, name) == value for name, value in wanted.items())
    ]


def tables() -> list[PaperTable]:
    """What tables there are."""
    found = []
    for name in dict.fromkeys(number.table for number in _all()):
        numbers = [number for number in _all() if number.table == name]
        models = tuple(dict.fromkeys(number.model for number in numbers))
        found.append(PaperTable(name, numbers[0].dataset, models, numbers[0].setting))
    return found


def pixels_of(dataset: str, sparsity_percent: float) -> int:
    """The number of pixels that the paper means by a percentage of an image's pixels."""
    if dataset not in _PIXELS:
        raise InputError(f"the paper has no percentages for {dataset!r}{hint(dataset, _PIXELS)}")
    known = _PIXELS[dataset]
    if sparsity_percent not in known:
        choices = ", ".join(f"{percent:g}" for percent in sorted(known))
        raise InputError(
            f"the paper has no {sparsity_percent:g} % on {dataset}: give one of {choices}, or give "
            f"a number of pixels instead"
        )
    return known[sparsity_percent]


def _check_filter(name: str, value: str | float | None) -> None:
    """A misspelt filter must not look like a paper that says nothing."""
    if name not in _FIELDS:
        raise InputError(f"the paper's numbers have no {name!r}{hint(name, _FIELDS)}")
    known = dict.fromkeys(getattr(number, name) for number in _all())
    if value not in known:
        raise InputError(
            f"no number of the paper has {name} {value!r}{hint(str(value), map(str, known))}"
        )


@cache
def _all() -> tuple[PaperNumber, ...]:
    text = files("brusle.evaluation.paper").joinpath("results.csv").read_text(encoding="utf-8")
    return tuple(_number(row) for row in csv.DictReader(text.splitlines()))


def _number(row: dict[str, str]) -> PaperNumber:
    percent, value = row["sparsity_percent"], row["value"]
    return PaperNumber(
        table=row["table"],
        dataset=row["dataset"],
        model=row["model"],
        setting=row["setting"],
        attack=row["attack"],
        variant=row["variant"],
        sparsity_percent=float(percent) if percent else None,
        queries=int(row["queries"]),
        metric=row["metric"],
        value=math.inf if value.endswith("(failed)") else float(value),
    )
