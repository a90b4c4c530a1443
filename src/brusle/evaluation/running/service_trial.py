"""A service is tried on one image before an evaluation: what was sent, what came back, the cost."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from brusle.data import Data, as_source
from brusle.evaluation.running.estimate import LATENCY, USUAL, effort
from brusle.victim import Victim, check_shape


@dataclass(frozen=True)
class ServiceTrial:
    """One call of a service.

    Attributes:
        request: what was sent, with keys masked and pixels shortened.
        response: what came back, likewise.
        understood: labels and scores, a line each.
        error: why nothing was understood; empty if something was.
        seconds: how long the call took.
        costs: what an evaluation would take, a line each.
    """

    request: str
    response: str
    understood: str
    error: str
    seconds: float
    costs: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def try_service(victim: Any, data: Data, queries: int) -> ServiceTrial:
    """Ask a service for the first image of ``data``, once.

    Args:
        victim: a victim with a method ``explain``.
        data: the images.
        queries: of the evaluation whose cost is told, at most.
    """
    image = as_source(data, victim).read([0])[0]
    check_shape(tuple(image.shape), victim)
    began = time.monotonic()
    seen = victim.explain(image)
    seconds = time.monotonic() - began
    return ServiceTrial(
        seen.request_text,
        seen.response_text,
        seen.extracted,
        seen.error,
        seconds,
        tuple(_costs(victim, queries, seconds)),
    )


def _costs(victim: Victim, queries: int, seconds: float) -> list[str]:
    cases = {
        "worst case": queries,
        f"if attacks need {USUAL:.0%} of their limit": round(USUAL * queries),
    }
    return [
        f"an evaluation, {name}: {effort(victim, count, max(seconds, LATENCY / 100)).told()}"
        for name, count in cases.items()
    ]
