"""Who shows results and runs in notebooks.

What attacks and evaluations return does not know how tables and pictures are made. The top of the
package knows both and says here who does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Shower = Callable[[Any], str | None]  # HTML of a result or a run; None leaves it to `repr`

_showers: list[Shower] = []


def show_with(shower: Shower) -> None:
    """Let ``shower`` make the HTML from now on."""
    _showers[:] = [shower]


def html_of(thing: Any) -> str | None:
    """What notebooks show of ``thing``; None is its `repr`."""
    for shower in _showers:
        return shower(thing)
    return None
