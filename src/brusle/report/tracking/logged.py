"""What became of logging a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Logged:
    """A run in a tracker.

    Attributes:
        tracker: its kind.
        where: the place, for people.
        id: what the tracker calls the run.
        new: whether anything was written; False if the same was there already.
        replaces: id of what the tracker has of this run from before, if it is kept beside.
        remark: what else to know.
    """

    tracker: str
    where: str
    id: str
    new: bool
    replaces: str = ""
    remark: str = ""

    def told(self) -> str:
        """In a line."""
        if not self.new:
            return f"{self.tracker} has this run already: {self.where}, run {self.id}"
        replaces = f", which replaces {self.replaces}" if self.replaces else ""
        remark = f"; {self.remark}" if self.remark else ""
        return f"logged to {self.tracker}: {self.where}, run {self.id}{replaces}{remark}"
