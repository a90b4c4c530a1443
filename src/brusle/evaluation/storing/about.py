"""What a store says about its run: each fact is JSON of a known type, whoever wrote it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from brusle.data import Framing
from brusle.errors import DataError
from brusle.victim import Traits, Victim, traits

_STRICT = ConfigDict(strict=True, extra="allow")
_Sides = Annotated[list[PositiveInt], Field(min_length=3, max_length=3)]


class Session(TypedDict):
    """One call of `brusle.evaluate` that wrote to the store."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]
    began: str
    plan: dict[str, Any]
    pairs: str
    provenance: dict[str, Any]
    preflight_queries: NotRequired[NonNegativeInt]
    preflight_lost: NotRequired[NonNegativeInt]


class _Frame(TypedDict):
    """A `brusle.data.Framing`."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]
    resize: PositiveInt | None
    crop: Annotated[list[PositiveInt], Field(min_length=2, max_length=2)]
    filter: Literal["bilinear", "bicubic"]


class Like(TypedDict):
    """What data sets ask a victim for: how photographs are framed, and what classes are called."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]
    framing: _Frame | None
    shape: _Sides | None
    classes: list[str] | None


_TYPES: dict[str, Any] = {
    "format": str,
    "brusle": str,
    "victim": str,
    "weights": str,
    "data": str,
    "like": Like,
    "shape": _Sides,
    "classes": list[str],
    "randomised": bool,
    "notes": list[str],
    "warnings": dict[str, str],
    "sessions": Annotated[list[Session], Field(min_length=1)],
}
_FACTS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, kind in _TYPES.items()}
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


def read_fact(name: str, text: str) -> Any:
    """A fact from its JSON; raises if that is damaged or of another type than it must be."""
    try:
        return _FACTS.get(name, _ANYTHING).validate_json(text, strict=True)
    except ValidationError as error:
        raise DataError(f"what it says about {name!r} cannot be read ({reason(error)})") from error


def reason(error: ValidationError) -> str:
    """The first thing that pydantic found, in a few words."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


def likeness(victim: Victim) -> Like:
    """What `traits_of` needs to know of a victim when it is no longer there."""
    known = traits(victim)
    framing = known.framing if isinstance(known.framing, Framing) else None
    return {
        "framing": None if framing is None else asdict(framing),  # type: ignore[typeddict-item]
        "shape": None if known.shape is None else list(known.shape),
        "classes": None if known.classes is None else [str(name) for name in known.classes],
    }


def traits_of(like: Like | None) -> Traits:
    """Stands in for the victim when data are opened, without being one."""
    if like is None:
        return Traits()
    framing, shape = like["framing"], like["shape"]
    return Traits(
        classes=like["classes"],
        shape=None if shape is None else (shape[0], shape[1], shape[2]),
        framing=None
        if framing is None
        else Framing(
            framing["resize"], (framing["crop"][0], framing["crop"][1]), framing["filter"]
        ),
    )
