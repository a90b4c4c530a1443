"""One attack on one image: from a run that is stored, or from a result that is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from brusle.errors import InputError
from brusle.evaluation.storing.choosing import Chosen
from brusle.evaluation.storing.remaking import remade
from brusle.evaluation.storing.rows import rebuild
from brusle.evaluation.storing.runs import Run
from brusle.names import hint
from brusle.outcomes import HIT, Status
from brusle.problems import Problems
from brusle.results import AttackResult
from brusle.text import brief
from brusle.tracing import Trace

Top = tuple[tuple[int, float], ...]  # labels with their scores, the best first


@dataclass(frozen=True)
class Case:
    """What is known without asking anybody.

    Attributes:
        name: what the image is called.
        title: the attack, for people.
        attack: the attack itself; None if it is not known.
        problem: a single one.
        seed: of the attack.
        adversarial: ``(c, h, w)``, the best image that was found.
        status: what became of it.
        queries: of the attack.
        limit: most queries that it might have had.
        labels: what the victim says to the clean image and to the adversarial; -1 if unknown.
        classes: names of the classes; empty if they have none.
        trace: what the search found on its way, if that was kept.
    """

    name: str
    title: str
    attack: Any
    problem: Problems
    seed: int
    adversarial: Tensor
    status: Status
    queries: int
    limit: int
    labels: tuple[int, int]
    classes: tuple[str, ...]
    trace: Trace | None

    @classmethod
    def stored(cls, run: Run, chosen: Chosen) -> Case:
        """One of a run."""
        setting, row = chosen.setting, chosen.row
        image = run.originals.take([row.image])
        targets = None if row.target is None else [row.target]
        return cls(
            row.image,
            setting.title,
            remade(setting),
            Problems.make(image, [row.label], targets, [row.problem]),
            setting.seed,
            rebuild(row, image[0]),
            row.status,
            row.queries,
            setting.queries,
            (row.clean_label, row.final_label),
            tuple(run.classes),
            run.trace(setting, row),
        )

    @classmethod
    def fresh(
        cls, result: AttackResult, which: int, classes: Sequence[str], attack: Any = None
    ) -> Case:
        """One of a result.

        Args:
            result: what an attack returned.
            which: number of the image.
            classes: names of the classes.
            attack: the attack, if it is known.
        """
        info = result.attack
        goal = "untargeted" if result.problems.targets is None else "targeted"
        return cls(
            result.names[which],
            f"{info.label} {goal}, {info.pixels} px",
            attack,
            result.problems[which : which + 1],
            result.seed,
            result.images[which],
            result.status[which],
            int(result.queries[which]),
            info.queries,
            (int(result.clean_labels[which]), int(result.labels[which])),
            tuple(classes),
            result.traces.get(which),
        )

    @property
    def original(self) -> Tensor:
        """``(c, h, w)``."""
        return self.problem.images[0]

    @property
    def tops(self) -> tuple[Top, Top] | None:
        """The best labels of both images, by the trace; None if it does not know their scores."""
        if self.trace is None:
            return None
        before, after = (tuple(self.trace.improvements[at].top) for at in (0, -1))
        # an attack that needs labels only is told no scores: its trace says 1
        return None if len(after) == 1 < len(before) else (before, after)

    @property
    def label(self) -> int:
        """The true one."""
        return int(self.problem.labels[0])

    @property
    def target(self) -> int | None:
        """The label to reach; None if untargeted."""
        return None if self.problem.targets is None else int(self.problem.targets[0])


def number_of(result: AttackResult, image: int | str | None) -> int:
    """Which image of a result is meant.

    Args:
        result: what an attack returned.
        image: its number or its name; None takes the first that was fooled, or else the first that
            was attacked, or else the first.
    """
    if image is None:
        ranks = [(status != HIT, status == "skipped") for status in result.status]
        if not ranks:
            raise InputError("the result has no images: there is nothing to explain")
        return ranks.index(min(ranks))
    if isinstance(image, str):
        if image not in result.names:
            known = hint(image, result.names)
            raise InputError(f"the result has no image {brief(image)}{known}")
        return list(result.names).index(image)
    if not 0 <= image < len(result):
        raise InputError(f"image {image}: the result has {len(result)}, from 0")
    return image
