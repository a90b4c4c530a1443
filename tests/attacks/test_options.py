"""Options are declared once, and a wrong one is refused in one line that names it."""

from dataclasses import fields
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from brusle.attacks import ATTACKS, BruSLe, Minimal, Restarts
from brusle.attacks.options import check_count
from brusle.errors import InputError


def rule(kind: Any) -> Any:
    """The rule of an option that may also be None."""
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    return kind


OPTIONS = [
    pytest.param(cls, f.name, rule(hints[f.name]), id=f"{cls.__name__}-{f.name}")
    for cls in ATTACKS.values()
    for hints in [get_type_hints(cls, include_extras=True)]
    for f in fields(cls)
]


def message(make: Any) -> str:
    with pytest.raises(InputError) as said:
        make()
    assert "\n" not in str(said.value)
    return str(said.value)


@pytest.mark.parametrize(("cls", "name", "kind"), OPTIONS)
def test_every_option_has_a_rule_that_refuses_other_types(cls, name, kind) -> None:
    assert kind is bool or get_origin(kind) in (Literal, Annotated)
    for wrong in ("nonsense", [3], object()):
        text = message(lambda wrong=wrong: cls(**{"pixels": 3, name: wrong}))
        assert text.startswith(f"{name} is {wrong!r}: ")
    for wrong in (float("nan"), True) if get_origin(kind) is Annotated else ():
        text = message(lambda wrong=wrong: cls(**{"pixels": 3, name: wrong}))
        assert text.startswith(f"{name} is {wrong!r}: ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"z": "a"}, "z is 'a': it must be above 0, or unseen pixels have no weight"),
        ({"dissimilarity": 3}, "dissimilarity is 3: it must be true or false"),
        ({"alpha_prior": float("nan")}, "alpha_prior is nan: below 1, weights turn negative"),
        ({"lambda_0": 2}, "lambda_0 is 2: it must be above 0 and at most 1"),
        ({"initial": 1.0}, "initial is 1.0: it must be an integer of at least 1"),
        ({"queries": 2**41}, f"queries is {2**41}: the most is {2**40}"),
        ({"loss": None}, "loss is None: choose from auto, ce, margin, logit-margin"),
    ],
)
def test_messages_name_cause_and_remedy(options, expected) -> None:
    assert message(lambda: BruSLe(5, **options)) == expected


def test_none_is_taken_where_it_means_something() -> None:
    assert BruSLe(5, lambda_0=None).lambda_0 is None


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3", None, float("nan")])
def test_counts_are_whole_numbers_of_at_least_one(wrong) -> None:
    expected = f"runs is {wrong!r}: it must be an integer of at least 1"
    assert message(lambda: check_count("runs", wrong)) == expected
    assert message(lambda: Restarts(BruSLe(3), wrong)) == expected.replace("runs", "times")
    assert message(lambda: Minimal(BruSLe(3), wrong)) == expected.replace("runs", "total")
    check_count("runs", 1)
    check_count("runs", 2**40)
