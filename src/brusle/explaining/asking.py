"""What only the victim can say: where it looks, and its scores where no trace has them.

All of this is asked beside the attack, which has ended: no ledger of an attack knows of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brusle import looking, rng
from brusle.errors import BrusleError, VictimError
from brusle.explaining.cases import Case, Top
from brusle.looking import Look
from brusle.looking.looks import How
from brusle.oracle import Oracle
from brusle.replies import KeepsBooks
from brusle.tracer import tops
from brusle.tracing import TOP
from brusle.victim import Victim

Looking = How | Literal["auto", "none"]
_ASK = "say --look occlusion (in Python look='occlusion')"
_RESTART = -4  # that no attack has: the noise of a randomised victim is another


@dataclass(frozen=True)
class Wish:
    """How to look.

    Attributes:
        how: as in `brusle.looking.look`, or ``"none"``.
        layer: of GradCAM.
    """

    how: Looking = "auto"
    layer: str | None = None

    @property
    def chosen(self) -> bool:
        """Whether the user says how, and so accepts what it costs."""
        return self.how not in ("auto", "none")


AUTO = Wish()


@dataclass(frozen=True)
class Said:
    """What was found out.

    Attributes:
        look: maps of the clean image and of the adversarial one; None if there is none.
        tops: the best labels of both; None if they were not asked for, since they are known.
        asked: images that the victim was asked for.
        notes: what to tell people.
    """

    look: Look | None = None
    tops: tuple[Top, Top] | None = None
    asked: int = 0
    notes: tuple[str, ...] = ()


def ask(victim: Victim, case: Case, wish: Wish) -> Said:
    """Ask a victim what is wanted of it, if that may be asked.

    Args:
        victim: the victim of the case.
        case: what is explained.
        wish: how to look. What may cost something is done only if the user has chosen it.
    """
    may_cost = isinstance(victim, KeepsBooks) and not wish.chosen
    images = torch.stack([case.original, case.adversarial])
    found, note = _look(victim, case, images, wish)
    said, asked = None, 0 if found is None else found.queries
    if case.tops is None and not may_cost:
        said, more = _listed(victim, case, images)
        asked += more
    return Said(found, said, asked, tuple(filter(None, (note,))))


def _look(victim: Victim, case: Case, images: Tensor, wish: Wish) -> tuple[Look | None, str]:
    if wish.how == "none":
        return None, ""
    labels = [label if label >= 0 else case.label for label in case.labels]
    try:
        found = looking.look(victim, images, labels, how=wish.how, layer=wish.layer)
    except BrusleError as error:
        if wish.chosen or wish.layer is not None:
            raise
        if isinstance(victim, KeepsBooks):
            return None, f"{victim.name} may cost something: to see where it looks, {_ASK}"
        return None, f"where it looks is left out: {error}"
    return found, found.note


def _listed(victim: Victim, case: Case, images: Tensor) -> tuple[tuple[Top, Top] | None, int]:
    """The best labels of both images, and the queries that took."""
    rows = torch.arange(2)
    streams = rng.streams(case.seed, case.problem.ids.expand(2), _RESTART)
    oracle = Oracle(victim, 2, limit=0, batch_size=2, streams=streams)
    answers = oracle.ask_once(rows, images, "clean")
    if answers.errors:
        raise VictimError(f"{victim.name} does not answer: {next(iter(answers.errors.values()))}")
    before, after = (
        tuple(zip(labels.tolist(), scores.tolist(), strict=True))
        for labels, scores in tops(answers, TOP)
    )
    return (before, after), int(oracle.ledger.total.sum())
