"""How what a user has becomes a victim.

Attacks are called on models and need to know no kind of victim. Who knows them all is said at the
top of the package, where its parts are put together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brusle.victim import Victim

Adapter = Callable[[Any, str], "Victim"]
_adapters: list[Adapter] = []


def adapt_with(adapter: Adapter) -> None:
    """Let ``adapter`` turn models, on a device, into victims from now on."""
    _adapters[:] = [adapter]


def adapted(model: Any, device: str = "auto") -> Victim:
    """The victim that ``model`` is or can be made into."""
    (adapter,) = _adapters
    return adapter(model, device)
