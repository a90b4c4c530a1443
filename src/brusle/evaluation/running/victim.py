"""How the victim of an evaluation is opened, here or in another process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from brusle.defences import defend
from brusle.errors import InputError
from brusle.terms import Terms
from brusle.victim import Victim
from brusle.victims import as_victim, timed


@dataclass(frozen=True)
class VictimSpec:
    """What a user says of a victim.

    Attributes:
        victim: a name, a module or a victim.
        device: where it runs.
        defences: defences before it, the innermost first.
        timeout: most seconds that one call of it may take; None is no limit.
        terms: on which terms a service is asked.
    """

    victim: Any
    device: str = "auto"
    defences: tuple[str, ...] = ()
    timeout: float | None = None
    terms: Terms | None = None

    def open(self) -> Victim:
        """The victim, behind its defences."""
        terms = self.terms
        if terms is not None and self.timeout is not None:
            terms = replace(terms, timeout=self.timeout)
        victim = as_victim(self.victim, self.device, terms)
        if terms_of(victim) is None:
            return timed(defend(victim, self.defences), self.timeout)
        if self.defences:
            raise InputError(
                f"{victim.name} is a service, which a defence on this side does not defend: leave "
                f"--defence out, or give it to `brusle serve`"
            )
        return victim  # it has a time limit of its own, for each call


def terms_of(victim: Victim) -> Terms | None:
    """On which terms a service is asked; None of other victims."""
    terms: Terms | None = getattr(victim, "terms", None)
    return terms
