"""What Foolbox and ART have in common: attacks by name, of which some need only answers."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isclass
from typing import Any

from brusle.attacks.external import External, Goals
from brusle.errors import BrusleError, InputError, first_line
from brusle.packages import need


@dataclass(frozen=True)
class Library:
    """A package of attacks.

    Attributes:
        title: what people call it.
        kind: what stands before the colon of a name.
        module: where its attacks are.
        base: module and name of the class that all of them derive from.
        labels: those that look at nothing but the class on top.
        scores: those that look at the scores.
        sparse: those whose images differ from the original in few pixels.
        goals: those that know one goal only.
    """

    title: str
    kind: str
    module: str
    base: tuple[str, str]
    labels: frozenset[str]
    scores: frozenset[str]
    sparse: tuple[str, ...]
    goals: Mapping[str, Goals]

    @property
    def known(self) -> list[str]:
        """Attacks that need answers and nothing else."""
        return sorted(self.labels | self.scores)

    def attack(self, name: str) -> Any:
        """The class of this name; only attacks of the package have one."""
        module = need(self.module, f"{self.kind}:{name}", InputError)
        if name in self.known:
            return getattr(module, name)
        found = getattr(module, name, None)
        base = getattr(need(self.base[0], self.title, InputError), self.base[1])
        if isclass(found) and issubclass(found, base):
            raise InputError(
                f"{name} of {self.title} needs gradients, or more than a model and an image, and "
                f"only answers are counted: take {' or '.join(self.sparse)}, or brusle's own "
                f"white-box attacks (pgd0, sigma-zero)"
            )
        raise InputError(f"{self.title} has no attack {name!r}{_close(name, self.known)}")

    def external(
        self,
        name: str,
        function: Callable[..., Any],
        try_out: Callable[[Mapping[str, Any]], object],
        options: Mapping[str, Any],
        **settings: Any,
    ) -> External:
        """The attack ``name``, whose options are tried out first.

        Args:
            name: of the attack.
            function: runs it.
            try_out: makes it, and raises if it does not like an option.
            options: its options.
            **settings: other arguments of `External`.
        """
        try:
            try_out(options)
        except BrusleError:
            raise
        except Exception as error:
            raise InputError(
                f"{self.kind}:{name} refuses its options: {first_line(error)}"
            ) from error
        return External(
            function,
            name=f"{self.kind}:{name}",
            options=options,
            needs="labels" if name in self.labels else "scores",
            goals=self.goals.get(name, "both"),
            **settings,
        )


def _close(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {close[0]!r}?" if close else ": docs/external.md lists them"
