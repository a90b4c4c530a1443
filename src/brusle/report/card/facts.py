"""What a card needs to know of a run: counted once, for all that it says."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from brusle.evaluation.record import GoalName, Row, Setting
from brusle.evaluation.statistics import Rate
from brusle.evaluation.statistics.counting import robust_accuracy, success_rate
from brusle.evaluation.storing.runs import Run
from brusle.outcomes import CLAIMED, Status
from brusle.report.content import Content

_FOLDERS = re.compile(r"(?:(?<=^)|(?<=[\s:=,\"'(\[]))(?:~|\.\.?)?/(?![/\s])(?:[^/?&\"',\s]*/)*")
# of several attacks on one problem, what says most about it; an error says that nobody knows
_RANKS: tuple[Status, ...] = ("success", "unverified", "skipped", "error", "failed")


@dataclass(frozen=True)
class Worst:
    """All attacks with a goal together, within a pixel budget.

    Attributes:
        goal: their goal.
        pixels: the budget.
        attacks: how many settings count.
        asr: problems on which at least one succeeded, over those that were attacked.
        robust: problems on which none did, over all without error.
    """

    goal: GoalName
    pixels: int
    attacks: int
    asr: Rate
    robust: Rate


@dataclass(frozen=True)
class Facts:
    """A run, counted.

    Attributes:
        content: what its report says.
        worst: all attacks together, by goal and budget.
        per_class: images of each true class.
        targets: for each image that has any, how many targets were tried.
        plans: what was asked for, each once, the first first.
    """

    content: Content
    worst: tuple[Worst, ...]
    per_class: dict[int, int]
    targets: dict[str, int]
    plans: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, run: Run, content: Content) -> Facts:
        """Count all that is stored."""
        labels: dict[str, int] = {}
        targets: dict[str, set[int]] = defaultdict(set)
        worst: list[Worst] = []
        for goal in dict.fromkeys(setting.goal for setting in run.settings):
            stored = {s: run.stored(s) for s in run.settings if s.goal == goal}
            for rows in stored.values():
                labels |= {row.image: row.label for row in rows}
                for row in rows:
                    if row.target is not None:
                        targets[row.image].add(row.target)
            budgets = sorted({setting.pixels for setting in stored})
            worst += [_worst(goal, budget, stored) for budget in budgets]
        plans: list[dict[str, Any]] = []
        for session in run.about.sessions:
            if session.plan not in plans:
                plans.append(session.plan)
        return cls(
            content=content,
            worst=tuple(worst),
            per_class=dict(sorted(Counter(labels.values()).items())),
            targets={image: len(mine) for image, mine in targets.items()},
            plans=tuple(plans),
        )

    @property
    def settings(self) -> list[Setting]:
        """What was run."""
        return [report.setting for report in self.content.settings]

    @property
    def goals(self) -> list[GoalName]:
        """Each once."""
        return list(dict.fromkeys(setting.goal for setting in self.settings))

    @property
    def attacks(self) -> list[str]:
        """Names of attacks, each once."""
        return list(dict.fromkeys(setting.attack for setting in self.settings))

    @property
    def errors(self) -> int:
        """How many attacks ended because the victim failed."""
        return sum(report.summary.errors for report in self.content.settings)

    @property
    def unverified(self) -> int:
        """How many reported successes did not pass the check."""
        return sum(report.summary.unverified for report in self.content.settings)


def without_folders(text: str) -> str:
    """``text`` without the folders of paths in it, which are their owner's business."""
    return _FOLDERS.sub("…/", text)


def _worst(goal: GoalName, budget: int, stored: Mapping[Setting, Sequence[Row]]) -> Worst:
    """What all settings say together that may change so many pixels, or looked for fewer."""
    some = [rows for s, rows in stored.items() if s.pixels <= budget or s.minimal]
    found: dict[int, list[Row]] = defaultdict(list)
    for rows in some:
        for row in rows:
            # of a search for the fewest, what it found with more pixels is nothing here
            late = row.status in CLAIMED and row.pixels > budget
            found[row.problem].append(replace(row, status="failed") if late else row)
    everywhere = [mine for mine in found.values() if len(mine) == len(some)]
    rows = [min(mine, key=lambda row: _RANKS.index(row.status)) for mine in everywhere]
    return Worst(goal, budget, len(some), success_rate(rows), robust_accuracy(rows))
