"""One grammar for what can be named: ``kind:rest?option=value&option=value``."""

import pytest

from brusle.errors import InputError
from brusle.names import Name


@pytest.mark.parametrize(
    ("text", "kind", "rest", "options"),
    [
        ("sample", "sample", "", {}),
        ("sample:", "sample", "", {}),
        ("sample?", "sample", "", {}),
        ("brusle?palette=uniform&colours=2", "brusle", "", {"palette": "uniform", "colours": "2"}),
        ("python:a.b:make?x=1:2&y=a=b", "python", "a.b:make", {"x": "1:2", "y": "a=b"}),
        ("onnx:a?mean=0.5,0.5", "onnx", "a", {"mean": "0.5,0.5"}),
        ("rnd?sigma=a:b", "rnd", "", {"sigma": "a:b"}),
        ("a:b?c=&&d=?", "a", "b", {"c": "", "d": "?"}),
        ("a?b", "a", "", {"b": None}),
    ],
)
def test_a_name_is_taken_apart(text, kind, rest, options) -> None:
    name = Name.parse(text)
    assert (name.text, name.kind, name.rest, name.options) == (text, kind, rest, options)


def test_options_are_taken_once_and_none_is_left() -> None:
    name = Name.parse("kind:rest?one=1&two=off&three=x")
    assert name.take("one") == "1" and name.take("one", "2") == "2"
    assert name.take_flag("two", True) is False
    with pytest.raises(
        InputError, match="'kind:rest.*' has no option 'three': known are one, two$"
    ):
        name.done()
    assert name.take_all() == {"three": "x"}
    name.done()
    plain = Name.parse("kind?a=1&b=0.5&c=none&d=true&e=")
    assert plain.take_all() == {"a": 1, "b": 0.5, "c": None, "d": True, "e": ""}


def test_commas_are_another_way_to_write_options() -> None:
    name = Name.parse("kind:a=1,b=2?c=3")
    name.take_commas()
    assert name.rest == "" and name.options == {"a": "1", "b": "2", "c": "3"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind?known", "option 'known' of 'kind?known' has no value: write known=VALUE"),
        ("kind:known", "option 'known' of 'kind:known' has no value: write known=VALUE"),
        ("kind?knowm", "'kind?knowm' has no option 'knowm': did you mean 'known'?"),
        ("kind?known=1&known=2", "option 'known' of .* is given twice: leave one out"),
        ("kind:known=1?known=2", "option 'known' of .* is given twice: leave one out"),
        ("kind:\0", "has a character that no name can have"),
    ],
)
def test_what_is_wrong_with_options(text, message) -> None:
    def use() -> None:
        name = Name.parse(text)
        name.take_commas()
        name.take("known")
        name.done()

    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        use()
    if "\0" not in text and "twice" not in message:
        with pytest.raises(InputError, match="has no value"):
            Name.parse(text.replace(":", "?")).take_all()
