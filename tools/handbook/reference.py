"""Pages of the public names, made of signatures and docstrings.

Public is what ``brusle.__all__`` names, what the packages among these list in their own
``__all__``, and the modules that an author of an attack or a victim imports (`FOR_AUTHORS`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any

import brusle
from handbook.docstrings import first_sentence, markdown

BESIDE = ("brusle.evaluation.statistics", "brusle.evaluation.paper.results")
FOR_AUTHORS = (
    "brusle.search",
    "brusle.problems",
    "brusle.scores",
    "brusle.rows",
    "brusle.rng",
    "brusle.victim",
)
_WIDTH = 100  # of a signature on one line


@dataclass(frozen=True)
class Module:
    """A module whose public names have a page.

    Attributes:
        name: as it is imported.
    """

    name: str

    @property
    def page(self) -> str:
        """The file of its page, in the folder of the reference."""
        return f"{self.name.removeprefix('brusle.')}.md"

    @cached_property
    def module(self) -> ModuleType:
        return import_module(self.name)

    @cached_property
    def names(self) -> dict[str, Any]:
        """Its public names, with what they are; modules among them have pages of their own."""
        listed = getattr(self.module, "__all__", None)
        found = {name: getattr(self.module, name) for name in listed or dir(self.module)}
        return {
            name: thing
            for name, thing in sorted(found.items(), key=lambda pair: pair[0].lower())
            if not name.startswith("_")
            and not isinstance(thing, ModuleType)
            and (listed or self._made_here(thing))
        }

    def _made_here(self, thing: Any) -> bool:
        callable_ = inspect.isclass(thing) or inspect.isfunction(thing)
        return callable_ and thing.__module__ == self.name


def modules() -> list[Module]:
    """The package, and its modules by name; those for authors come last."""
    inside = [n for n in dir(brusle) if isinstance(getattr(brusle, n), ModuleType)]
    names = ["brusle", *sorted([*(f"brusle.{name}" for name in inside), *BESIDE]), *FOR_AUTHORS]
    return [Module(name) for name in names]


class Reference:
    """All pages, which link to each other where a name has two places."""

    def __init__(self) -> None:
        self.modules = modules()
        self._homes: dict[int, tuple[Module, str]] = {}
        for module in self.modules:
            for name, thing in module.names.items():
                self._homes.setdefault(id(thing), (module, name))

    def pages(self) -> dict[str, str]:
        """File names and texts."""
        return {module.page: self._page(module) for module in self.modules}

    def index(self) -> str:
        """A page with a line for each module."""
        lines = [
            f"- [`{m.name}`]({m.page}): "
            + first_sentence(m.module.__doc__ or "").removeprefix(f"{m.name}: ")
            for m in self.modules
        ]
        authors = len(lines) - len(FOR_AUTHORS)
        return "\n".join(
            [
                "# Reference",
                "",
                "Made of the docstrings of this version, and of the commands' own help.",
                "",
                "- [Commands](commands.md): every command and option of `brusle`",
                *lines[:authors],
                "",
                "For authors of attacks and victims, beside [extending.md](../extending.md):",
                "",
                *lines[authors:],
                "",
            ]
        )

    def _page(self, module: Module) -> str:
        parts = [f"# `{module.name}`", markdown(module.module.__doc__ or "")]
        for name, thing in module.names.items():
            parts.append(f"## `{name}` {{ #{module.name}.{name} }}")
            home, other = self._homes[id(thing)]
            if (home, other) == (module, name):
                parts.extend(self._described(module, name, thing))
            else:
                where = "" if home is module else home.page
                full = f"{home.name}.{other}"
                parts.append(f"The same as [`{full}`]({where}#{full}).")
        return "\n\n".join(part for part in parts if part) + "\n"

    def _described(self, module: Module, name: str, thing: Any) -> Iterator[str]:
        if inspect.isclass(thing):
            yield from self._class(f"{module.name}.{name}", thing)
        elif inspect.isfunction(thing):
            yield _code(signature(f"{module.name}.{name}", thing))
            yield markdown(inspect.getdoc(thing) or "")
        else:
            yield _value(thing)

    def _class(self, full: str, cls: type) -> Iterator[str]:
        if is_dataclass(cls) or ("__init__" in vars(cls) and not issubclass(cls, Exception)):
            yield _code(signature(full, cls))
        yield markdown(own_doc(cls))
        public = [base for base in cls.__mro__[1:] if id(base) in self._homes]
        if public:
            links = (self._link(base) for base in public)
            yield f"It has what {', '.join(links)} {'has' if len(public) == 1 else 'have'}, too."
        for name, member in members(cls, public).items():
            title = name if isinstance(member, property) else f"{name}()"
            yield f"### `{title}` {{ #{full}.{name.strip('_')} }}"
            yield _code(_member_signature(cls.__name__, name, member))
            yield markdown(inspect.getdoc(member) or "")

    def _link(self, cls: type) -> str:
        home, name = self._homes[id(cls)]
        return f"[`{name}`]({home.page}#{home.name}.{name})"


def own_doc(cls: type) -> str:
    """The docstring that somebody wrote: dataclasses make one of their signature."""
    text = cls.__doc__ or ""
    return "" if text.startswith(f"{cls.__name__}(") else text


def members(cls: type, documented: list[type]) -> dict[str, Any]:
    """Public methods and properties that no base on another page has.

    A call counts as public. What says nothing about itself fills in what somebody else asks for.
    """
    elsewhere = {name for base in documented for name in dir(base)}
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("brusle"):
            continue
        for name, member in vars(base).items():
            plain = inspect.unwrap(getattr(member, "__func__", member))
            shown = isinstance(member, property) or inspect.isfunction(plain)
            public = not name.startswith("_") or name == "__call__"
            if shown and public and inspect.getdoc(member) and name not in elsewhere:
                found[name] = member
    return dict(sorted(found.items()))


def signature(name: str, thing: Any) -> str:
    """How it is called, as Python; long ones have a line for each parameter."""
    said = inspect.signature(thing)
    if inspect.isclass(thing):
        said = said.replace(return_annotation=said.empty)
    return _fitted(name, said)


def _member_signature(cls: str, name: str, member: Any) -> str:
    if isinstance(member, property):
        answer = inspect.signature(member.fget).return_annotation if member.fget else ""
        return f"{cls}.{name}: {_annotation(answer)}"
    function = getattr(member, "__func__", member)
    said = inspect.signature(function)
    if not isinstance(member, staticmethod):
        said = said.replace(parameters=list(said.parameters.values())[1:])
    shown = f"{cls}(...)" if name == "__call__" else f"{cls}.{name}"
    return _fitted(shown, said)


def _fitted(name: str, said: inspect.Signature) -> str:
    answer = said.return_annotation
    behind = "" if answer is inspect.Signature.empty else f" -> {_annotation(answer)}"
    parts = list(_parameters(said))
    line = f"{name}({', '.join(parts)}){behind}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){behind}"])


def _parameters(said: inspect.Signature) -> Iterator[str]:
    """Each parameter as it is written, with the bare ``*`` where it belongs."""
    star = False
    for one in said.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        star = star or one.kind is one.VAR_POSITIONAL
        stars = "*" * (one.kind is one.VAR_POSITIONAL) + "**" * (one.kind is one.VAR_KEYWORD)
        kind = "" if one.annotation is one.empty else f": {_annotation(one.annotation)}"
        equal = " = " if kind else "="
        yield f"{stars}{one.name}{kind}" + (
            "" if one.default is one.empty else f"{equal}{_default(one.default)}"
        )


def _default(value: Any) -> str:
    if inspect.isfunction(value) or inspect.isclass(value):
        return str(value.__name__)
    text = repr(value)
    return "..." if text.startswith("<") else text  # made when it is called


def _annotation(thing: Any) -> str:
    return thing if isinstance(thing, str) else inspect.formatannotation(thing)


def _value(thing: Any) -> str:
    """Something that is neither class nor function."""
    if isinstance(thing, Mapping):
        return f"A mapping, with {', '.join(f'`{key}`' for key in thing)}."
    return f"`{thing!r}`"


def _code(text: str) -> str:
    return f"```python\n{text}\n```"
