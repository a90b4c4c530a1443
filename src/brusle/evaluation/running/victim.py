"""How the victim of an evaluation is opened, here or in another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from brusle.defences import defend
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
    """

    victim: Any
    device: str = "auto"
    defences: tuple[str, ...] = ()
    timeout: float | None = None

    def open(self) -> Victim:
        """The victim, behind its defences."""
        victim = defend(as_victim(self.victim, self.device), self.defences)
        return timed(victim, self.timeout)
