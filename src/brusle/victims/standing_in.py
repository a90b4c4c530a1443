"""Who stands in for a victim that is not there: what its journal says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from brusle.data.images import Framing
from brusle.database import damage
from brusle.errors import DataError, VictimUnavailable
from brusle.journal import About, Journal
from brusle.scores import Gives, Output
from brusle.victim import Victim, traits
from brusle.victims.fingerprints import fingerprint
from brusle.vocabulary import Vocabulary


def about(victim: Victim) -> About:
    """What a journal keeps of ``victim``."""
    said = traits(victim)
    vocabulary = said.vocabulary
    known = said.classes if vocabulary is None else None  # the labels of others may grow
    return About(
        victim=victim.name,
        fingerprint=fingerprint(victim),
        output=victim.output,
        gives=said.gives,
        classes=None if known is None else tuple(map(str, known)),
        shape=said.shape,
        randomised=said.randomised,
        missing=said.missing,
        framing=asdict(said.framing) if isinstance(said.framing, Framing) else None,
        aliases=None if vocabulary is None else vocabulary.aliases,
    )


@dataclass(frozen=True)
class StandIn:
    """A victim that says all of itself, and answers nothing; attributes as in `brusle.victim`."""

    name: str
    fingerprint: str
    output: Output
    gives: Gives
    classes: Sequence[str] | None
    shape: tuple[int, int, int] | None
    randomised: bool
    missing: Any
    framing: Framing | None
    vocabulary: Vocabulary | None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def of(cls, journal: Journal) -> StandIn:
        """For the victim of a journal."""
        said = journal.about
        if said is None:
            raise DataError(f"{journal.path} holds no answers: give the journal of a run")
        vocabulary = None if said.aliases is None else Vocabulary(said.aliases)
        framing = _framing(said.framing, str(journal.path))
        facts = said.model_dump(exclude={"victim", "aliases", "framing"})
        return cls(said.victim, **facts, framing=framing, vocabulary=vocabulary)

    def __call__(self, images: Tensor) -> Tensor:
        """Raises: nobody is there."""
        raise VictimUnavailable(f"{self.name} is not here: only its journal is")


def _framing(said: dict[str, Any] | None, journal: str) -> Framing | None:
    if said is None:
        return None
    try:
        return TypeAdapter(Framing).validate_python(said)
    except ValidationError as error:
        raise damage(journal, "its framing cannot be read") from error
