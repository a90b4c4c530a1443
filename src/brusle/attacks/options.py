"""Options of attacks are declared once, as annotated fields, and checked when an attack is made.

    palette: Palette = "binary"                          # a Literal: one of these words
    initial: Annotated[int, Ge(1)] = 10                  # a whole number of at least 1
    f: Annotated[float, Gt(0), Le(2)] = 0.5              # a number above 0 and at most 2
    z: Annotated[float, Gt(0), Because("...")] = 0.01    # what to say if it is not

The bounds are those of the package annotated-types. ``X | None`` allows None as well.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from numbers import Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le

from brusle.errors import InputError

_MOST = 2**40  # sums of a few of these are 64-bit integers
Share = Annotated[float, Gt(0), Le(1)]
Count = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class Because:
    """What a user is told whose value is out of bounds."""

    text: str


def check_options(attack: object) -> None:
    """Raise if an option of ``attack``, a dataclass, is not what its annotation says."""
    cls: type = type(attack)
    for name, kind in _annotations(cls).items():
        _check(name, getattr(attack, name), kind)


def check_count(name: str, value: object) -> None:
    """Raise unless ``value`` is a whole number of at least 1."""
    _check(name, value, Count)


@cache
def _annotations(cls: type) -> dict[str, Any]:
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:  # a class that names types which exist for type checkers only
        return {}
    return {f.name: hints[f.name] for f in fields(cls)}


def _check(name: str, value: object, kind: Any) -> None:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        parts = [part for part in get_args(kind) if part is not NoneType]
        if value is not None and len(parts) == 1:
            _check(name, value, parts[0])
    elif origin is Literal:
        if value not in get_args(kind):
            raise InputError(f"{name} is {value!r}: choose from {', '.join(get_args(kind))}")
    elif origin is Annotated:
        base, *bounds = get_args(kind)
        _check_number(name, value, base, bounds)
    elif kind is bool and not isinstance(value, bool):
        raise InputError(f"{name} is {value!r}: it must be true or false")


def _check_number(name: str, value: object, kind: type, bounds: list[Any]) -> None:
    wanted = int if kind is int else Real
    number = value if isinstance(value, wanted) and not isinstance(value, bool) else None
    if number is None or not all(_holds(bound, number) for bound in bounds):
        reasons = [bound.text for bound in bounds if isinstance(bound, Because)]
        reason = reasons[0] if reasons else f"it must be {_in_words(kind, bounds)}"
        raise InputError(f"{name} is {value!r}: {reason}")
    if isinstance(number, int) and number > _MOST:
        raise InputError(f"{name} is {value}: the most is {_MOST}")


def _holds(bound: Any, value: Any) -> bool:
    """Whether a bound is kept; NaN keeps none."""
    if isinstance(bound, Ge):
        return bool(value >= bound.ge)
    if isinstance(bound, Gt):
        return bool(value > bound.gt)
    return bool(value <= bound.le) if isinstance(bound, Le) else True


def _in_words(kind: type, bounds: list[Any]) -> str:
    least = [f"at least {b.ge}" for b in bounds if isinstance(b, Ge)]
    above = [f"above {b.gt}" for b in bounds if isinstance(b, Gt)]
    most = [f"at most {b.le}" for b in bounds if isinstance(b, Le)]
    if least and most:
        return f"from {least[0].split()[-1]} to {most[0].split()[-1]}"
    text = " and ".join(least + above + most)
    return f"an integer of {text}" if kind is int else text
