"""What a report says, as numbers: gathered once, then written as HTML, Markdown or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from brusle.errors import InputError
from brusle.evaluation.record import About, Session, Setting
from brusle.evaluation.statistics import Flag, Rate
from brusle.evaluation.statistics.counting import answered
from brusle.evaluation.storing.runs import Run
from brusle.outcomes import ATTACKED
from brusle.report.comparison import Section, within
from brusle.report.families import families
from brusle.report.headline import results
from brusle.report.settings import (
    FamilyReport,
    SeedSpread,
    SettingReport,
    family_reports,
    seed_spreads,
)
from brusle.report.wording import in_words, listed, span

MEANINGS = {
    "not-converged": "The query limit is too low to call the remaining images robust.",
    "randomised": "The answers of the victim vary, and first hits are lucky draws: read the stable "
    "rate.",
    "black-box-beats-white-box": "Gradients are masked, or the white-box attack is weak: do not "
    "take the white-box number for the robustness of the victim.",
    "errors": "Read the reasons below before you trust the rates.",
}


@dataclass(frozen=True)
class Content:
    """All that a report says.

    Attributes:
        name: of the run.
        about: what the store says about victim, data and sessions.
        images: how many images there are.
        clean: images that the victim classifies correctly before any attack.
        settings: what is said about each setting.
        seeds: what varies with the seed.
        comparison: attacks against the first; None if there is one.
        writing: whether a run writes to the folder at this moment.
    """

    name: str
    about: About
    images: int
    clean: Rate
    settings: list[SettingReport]
    seeds: list[SeedSpread]
    comparison: Section | None
    writing: bool

    @property
    def victim(self) -> str:
        """Name of the victim."""
        return self.about.defended_victim

    @property
    def data(self) -> str:
        """Name of the data."""
        return self.about.data

    @property
    def classes(self) -> Sequence[str]:
        """Names of the classes; empty if they have none."""
        return self.about.names

    @property
    def randomised(self) -> bool:
        """Whether the victim says that its answers vary."""
        return self.about.randomised

    @property
    def warnings(self) -> dict[str, str]:
        """What is plainly wrong with the victim, by topic."""
        return self.about.warnings

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of the numbers should know."""
        return self.about.notes

    @property
    def sessions(self) -> Sequence[Session]:
        """Who wrote the run, when and with what; the last is the latest."""
        return self.about.sessions

    @property
    def unfinished(self) -> list[SettingReport]:
        """Settings that are not complete."""
        return [report for report in self.settings if not report.finished]

    @cached_property
    def families(self) -> list[FamilyReport]:
        """Settings that differ in their seed alone, together."""
        return family_reports({report.setting: report for report in self.settings})

    @property
    def state(self) -> str:
        """What to say if more results are to come; else empty."""
        if not self.writing and not self.unfinished:
            return ""
        stored = sum(report.summary.images for report in self.settings)
        asked = sum(max(r.setting.problems, r.summary.images) for r in self.settings)
        doing = "A run is writing at this moment" if self.writing else "The run is unfinished"
        return (
            f"{doing}: {stored} of {asked} attacks are stored, and {len(self.unfinished)} of "
            f"{len(self.settings)} settings are incomplete. Successes end earlier than failures, "
            f"so an unfinished success rate is too high."
        )

    def headline(self) -> list[str]:
        """The result in a few sentences."""
        names = list(dict.fromkeys(report.setting.attack for report in self.settings))
        limits = span(report.setting.queries for report in self.settings)
        pixels = span(report.setting.pixels for report in self.settings)
        return [
            f"{self.victim} was attacked on {self.images} images of {self.data} by "
            f"{listed(names)}. An attack may change {pixels} pixels of an image and ask the victim "
            f"{limits} times.",
            f"Before any attack, the victim classifies {in_words(self.clean, 'images')} correctly.",
            *results(self.families),
        ]

    def flags(self) -> dict[str, list[tuple[Setting, Flag]]]:
        """Reasons to doubt the numbers, by name."""
        found: dict[str, list[tuple[Setting, Flag]]] = {}
        for report in self.settings:
            for flag in report.flags:
                found.setdefault(flag.name, []).append((report.setting, flag))
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "run": self.name,
            **self.about.as_dict(),
            "images": self.images,
            "writing": self.writing,
            "unfinished": len(self.unfinished),
            "headline": self.headline(),
            "clean_accuracy": self.clean.as_dict(),
            "settings": [report.as_dict() for report in self.settings],
            "over_seeds": [spread.as_dict() for spread in self.seeds],
            "comparison": None if self.comparison is None else self.comparison.as_dict(),
        }


def gather(run: Run, writing: bool = False) -> Content:
    """Read a run; one setting is in memory at a time, or those that are compared.

    Args:
        run: the run.
        writing: whether it is being written.
    """
    if not run.settings:
        raise InputError(f"no attack has begun in {run.folder}: there is nothing to report yet")
    reports: list[SettingReport] = []
    right: dict[str, bool] = {}  # whether an image is classified correctly before any attack
    for setting in run.settings:
        rows = run.stored(setting)
        right.update({row.image: row.status in ATTACKED for row in answered(rows)})
        reports.append(SettingReport.of(setting, rows, run.flags.get(setting, []), run.randomised))
    return Content(
        name="" if run.folder is None else run.folder.resolve().name,
        about=run.about,
        images=run.images,
        clean=Rate(sum(right.values()), len(right)),
        settings=reports,
        seeds=[line for family in families(run.settings) for line in seed_spreads(run, family)],
        comparison=within(run),
        writing=writing,
    )
