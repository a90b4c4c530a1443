"""Whose answers a journal holds, in enough words to stand in for that victim."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from brusle.database import Damaged, require_text, require_unchanged, with_checksum
from brusle.errors import DataError
from brusle.journal.file import Changes, JournalFile
from brusle.scores import Gives, Output

SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum TEXT NOT NULL);
"""


class About(BaseModel):
    """What a victim says of itself.

    Attributes:
        victim: its name.
        fingerprint: of its weights; empty if that cannot be told.
        output: what its scores are.
        gives: all scores, or which of them.
        classes: their names.
        shape: of its images.
        randomised: its answers to the same image vary.
        missing: what an absent label counts as.
        framing: how photographs are brought to its shape.
        aliases: of a victim with a vocabulary, which labels mean the same; None of any other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    victim: str
    fingerprint: str
    output: Output
    gives: Gives
    classes: tuple[str, ...] | None
    shape: tuple[PositiveInt, PositiveInt, PositiveInt] | None
    randomised: bool
    missing: float | str
    framing: dict[str, Any] | None
    aliases: dict[str, tuple[str, ...]] | None

    def require_same(self, other: About, journal: str) -> None:
        """Raise if answers of ``other`` must not be mixed with those in ``journal``."""
        if (self.victim, self.fingerprint) == (other.victim, other.fingerprint):
            return
        mine, others = self.victim, other.victim
        if mine == others:
            mine, others = f"weights {self.fingerprint!r}", f"{other.fingerprint!r}"
        raise DataError(
            f"{journal} is the journal of another victim ({mine}, not {others}): choose another "
            f"place for it"
        )


def written(about: About) -> Changes:
    """What makes a journal say this of its victim."""
    row = with_checksum("victim", about.model_dump_json())
    return [("INSERT OR IGNORE INTO about VALUES (?, ?, ?)", [row])]


def read(file: JournalFile) -> About | None:
    """What a journal says of its victim; None if nothing yet."""
    found = file.select("SELECT * FROM about")
    with file.explained():
        require_unchanged(found, "fact")
        require_text(found)
        texts = {name: text for name, text, _ in found}
        if texts.keys() - {"format", "victim"}:
            raise Damaged("it says more about itself than brusle writes")
        if "victim" not in texts:
            return None
        try:
            return About.model_validate_json(texts["victim"], strict=True)
        except ValidationError as error:
            raise Damaged("what it says about its victim cannot be read") from error
