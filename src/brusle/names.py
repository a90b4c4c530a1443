"""Names of victims, data, defences and attacks: ``kind:rest?option=value&option=value``.

What the kinds are, and what a name is opened by, is in `brusle.registry`.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brusle.errors import InputError

_DIGITS = 18  # of a number that fits 64 bits
_WORDS: dict[str, Any] = {"true": True, "on": True, "false": False, "off": False, "none": None}


@dataclass
class Name:
    """A name taken apart.

    Attributes:
        text: the whole, for messages.
        kind: what stands before the first colon or question mark.
        rest: what stands between the two.
        options: what stands behind the question mark, None where there is no value; each is taken
            out when it is used (see `take`, `take_all` and `done`).
    """

    text: str
    kind: str
    rest: str
    options: dict[str, str | None] = field(default_factory=dict)
    _known: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, text: str) -> Name:
        """Take ``text`` apart."""
        if "\0" in text:
            raise InputError(f"{text!r} has a character that no name can have")
        front, _, query = text.partition("?")
        kind, _, rest = front.partition(":")
        name = cls(text, kind, rest)
        name._add_options(query.split("&"))
        return name

    def take_commas(self) -> None:
        """Move what stands behind the colon, as in ``kind:a=1,b=2``, to the options."""
        self._add_options(self.rest.split(","))
        self.rest = ""

    def _add_options(self, items: Iterable[str]) -> None:
        for item in filter(None, items):
            option, equals, value = item.partition("=")
            if option in self.options:
                raise InputError(
                    f"option {option!r} of {self.text!r} is given twice: leave one out"
                )
            self.options[option] = value if equals else None

    def take(self, option: str, default: str | None = None) -> str | None:
        """The option's text, once; ``default`` if it is not given."""
        self._known.append(option)
        if option not in self.options:
            return default
        value = self.options.pop(option)
        if value is None:
            raise InputError(
                f"option {option!r} of {self.text!r} has no value: write {option}=VALUE"
            )
        return value

    def take_all(self) -> dict[str, Any]:
        """All options that are left, as plain values, for code that knows its own options."""
        return {option: plain_value(self.take(option) or "") for option in list(self.options)}

    def take_word(self, what: str, some: Sequence[str]) -> str:
        """The first option without a value, which is a name of its own, once.

        Args:
            what: it names, for the message.
            some: of the words that it can be.
        """
        for option, value in self.options.items():
            if value is None:
                del self.options[option]
                return option
        raise InputError(
            f"{self.text!r} does not say which {what}: write {self.kind}:NAME, as in "
            f"{' or '.join(f'{self.kind}:{word}' for word in some)}"
        )

    def take_numbers(self, option: str) -> tuple[float, ...] | None:
        """The option as numbers with commas between, once."""
        text = self.take(option)
        if text is None:
            return None
        try:
            return tuple(float(part) for part in text.split(","))
        except ValueError as error:
            raise InputError(
                f"option {option} of {self.text!r} is {text!r}: give numbers with commas between"
            ) from error

    def take_choice(self, option: str, choices: tuple[str, ...], default: str) -> str:
        """The option, once, which must be one of ``choices``."""
        value = self.take(option, default)
        if value not in choices:
            raise InputError(
                f"option {option} of {self.text!r} is {value!r}: choose from {', '.join(choices)}"
            )
        return value

    def take_flag(self, option: str, default: bool) -> bool:
        """The option as true or false, once."""
        value = plain_value(self.take(option, str(default)) or "")
        if not isinstance(value, bool):
            raise InputError(f"option {option} of {self.text!r} must be true or false")
        return value

    def done(self) -> None:
        """Raise if options are left that nobody has taken."""
        for option in self.options:
            known = list(dict.fromkeys(self._known)) or ["none"]
            raise InputError(f"{self.text!r} has no option {option!r}{hint(option, known)}")


def plain_value(text: str) -> Any:
    """``text`` as a truth value, None, integer or float where it is one."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def whole_number(text: str) -> int | None:
    """``text`` as a number of at least 0 that can be counted to; None if it is none."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def hint(wrong: str, known: Iterable[str], most: int = 1) -> str:
    """The end of an "unknown name" message: close names, or all of them if there are few."""
    known = list(known)
    close = difflib.get_close_matches(wrong, known, n=most, cutoff=0.6)
    if close:
        return f": did you mean {' or '.join(map(repr, close))}?"
    if len(known) > 24:
        return f": known are {', '.join(known[:6])}, ... ({len(known)} in all)"
    return f": known are {', '.join(known)}"


def require_ending(path: str | Path, endings: Sequence[str]) -> str:
    """The ending of a file's name in small letters; raise unless it is one of ``endings``."""
    ending = Path(path).suffix.lower()
    if ending not in endings:
        raise InputError(
            f"cannot write {path} in the format of its name: name it {', '.join(endings)}"
        )
    return ending


def require_harmless(where: str, what: str, name: str, risk: str) -> None:
    """Raise if opening what a file names does more than read data.

    Files are mailed and copied, and nobody looks into them first; what a user names is another
    matter.

    Args:
        where: the file, for the message.
        what: what is named, which is the option that a user names it by.
        name: the name.
        risk: what opening it does, as the registry of its kind says; empty if it reads data.
    """
    if risk:
        raise InputError(
            f"{where} names the {what} {name}, which {risk}: if you trust that, say so with "
            f"--{what} {shlex.quote(name)}"
        )
