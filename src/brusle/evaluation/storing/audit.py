"""What can be told about a stored row without asking the victim: do its columns agree?"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from brusle.attacks import ATTACKS
from brusle.evaluation.record import Row, Setting
from brusle.goals import Goal
from brusle.ledger import COLUMNS
from brusle.outcomes import ATTACKED, FAULTY
from brusle.scores import Loss, Meaning, Output, Scores
from brusle.text import brief
from brusle.verify import draws_of, reaches, top_of
from brusle.victim import Traits

_NO_ATTACK = ("queries", "pixels", "verify", "backward")  # all 0 where there was no attack


@dataclass(frozen=True)
class RowAudit:
    """What is known of a run beside its rows.

    Attributes:
        setting: the setting of the rows.
        output: what the scores of the victim are.
        traits: what else it says of itself.
    """

    setting: Setting
    output: Output
    traits: Traits

    def contradictions(self, row: Row) -> Iterator[str]:
        """What one column of a row says against the others, or against the setting."""
        yield from self._of_aim(row)
        yield from self._of_status(row)
        yield from self._of_counts(row)
        yield from self._of_answer(row)

    def _of_aim(self, row: Row) -> Iterator[str]:
        if (row.target is None) != (self.setting.goal == "untargeted"):
            yield f"its target is {row.target}, and its goal {self.setting.goal}"
        plain = self.setting.success == "top1"
        if (
            row.status == "success"
            and plain
            and not reaches(row.final_label, row.label, row.target)
        ):
            yield f"a success whose final label is {row.final_label}"

    def _of_status(self, row: Row) -> Iterator[str]:
        if bool(row.error) != (row.status in FAULTY):
            yield f"its status is {row.status}, and its error {row.error[:80]!r}"
        if row.status in ATTACKED and row.clean_label != row.label:
            yield f"its status is {row.status}, and its clean label {row.clean_label}"
        if row.stable and row.status != "success":
            yield f"it is stable, and its status {row.status}"
        if row.status == "success" and not (row.stable or self.traits.randomised):
            yield "a success that is not stable, of a victim whose answers do not vary"
        if row.status == "skipped":
            yield from self._of_skipped(row)

    def _of_skipped(self, row: Row) -> Iterator[str]:
        seen = row.clean_label != -1 or self.traits.gives == "partial"  # a list may be empty
        if not seen or row.clean_label == row.label or row.final_label != row.clean_label:
            yield (
                f"it was not attacked, and its clean and final labels are {row.clean_label} and "
                f"{row.final_label}"
            )
        if not math.isnan(row.loss):
            yield f"it was not attacked, and its loss is {row.loss:g}"
        for name in _NO_ATTACK:
            if getattr(row, name):
                yield f"it was not attacked, and its {name} are {getattr(row, name)}"

    def _of_counts(self, row: Row) -> Iterator[str]:
        for name in COLUMNS:
            if getattr(row, name) < 0:
                yield f"its {name} are {getattr(row, name)}"
        if not (math.isfinite(row.seconds) and row.seconds >= 0):
            yield f"its seconds are {row.seconds}"
        if row.queries != row.initial + row.search:
            yield f"{row.queries} queries, but {row.initial} initial and {row.search} search"
        if row.queries > self.setting.queries:
            yield f"{row.queries} queries, and {self.setting.queries} are allowed"
        if row.backward > (row.queries if self.setting.needs == "gradients" else 0):
            yield f"{row.backward} gradients in {row.queries} queries"
        if row.status != "error" and row.clean != self.setting.eot:
            yield f"{row.clean} answers to the clean image, and {self.setting.eot} are asked for"
        wanted = {"success": draws_of(self.traits.randomised), "failed": 0}.get(
            row.status, row.verify
        )
        if row.verify != wanted:
            yield f"{row.verify} answers to verify it, and {wanted} are asked for"

    def _of_answer(self, row: Row) -> Iterator[str]:
        """What scores say of label and loss."""
        if len(row.scores) % 8:
            yield "its scores are damaged"
            return
        scores = np.frombuffer(row.scores)
        absent = np.isneginf(scores) & (self.traits.gives == "partial")
        if not len(scores) or not (np.isfinite(scores) | absent).all():
            return  # the victim has failed, and its row says so
        nothing = row.final_label == top_of(scores) == -1  # no label was named
        labels = (row.label, row.target or 0, 0 if nothing else row.final_label)
        if not all(0 <= label < len(scores) for label in labels):
            yield f"a label that is none of its {len(scores)} scores"
        elif not nothing and scores[row.final_label] < scores.max():
            yield f"its final label is {row.final_label}, and its scores say {top_of(scores)}"
        elif row.status == "success" and self.setting.success == "absent" and not absent[row.label]:
            yield "a success whose label is still in the list"
        elif math.isfinite(row.loss) and not self._is_loss(row, torch.from_numpy(scores.copy())):
            yield f"its loss of {row.loss:g} does not follow from its scores"

    def _is_loss(self, row: Row, scores: Tensor) -> bool:
        """Whether the loss is one of those that attacks follow; some count pixels."""
        label = torch.tensor([row.label])
        target = None if row.target is None else torch.tensor([row.target])
        known = [float(row.pixels)]
        if self.setting.success == "new":
            return True  # it depends on the list of the clean image, which is not stored
        meaning = Meaning(self.output, self.traits.gives, missing=self.traits.missing)
        said = Scores(scores[None], meaning)
        for loss in get_args(Loss):
            goal = Goal(target is not None, loss, self.setting.success)
            known.append(float(goal.losses(said, label, target)[0]))
        return any(math.isclose(row.loss, one, rel_tol=1e-4, abs_tol=1e-6) for one in known)


def setting_faults(key: str, setting: Setting) -> Iterator[str]:
    """What a setting says against the key that it is stored under."""
    attack = setting.attack.removeprefix("minimal ").split(" ")[0]
    if attack in {kind.__name__ for kind in ATTACKS.values()} and f'"{attack}"' not in key:
        yield f"its attack {attack} is not that of its key"
    if key == setting.key:
        return
    try:
        meant = _facts(key)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield "its key is none that brusle makes"
        return
    said = _facts(setting.key)
    for name in dict.fromkeys([*said, *meant]):
        if said.get(name) != meant.get(name):
            mine, other = brief(said.get(name)), brief(meant.get(name))
            yield f"its {name} is {mine}, and {other} by its key"


def _facts(key: str) -> dict[str, Any]:
    """What a key says, by what people call it."""
    content = json.loads(key)
    attack = content.pop("attack")
    return {
        **content,
        "kind of attack": attack["kind"],
        "pixel budget": attack["pixels"],
        "query limit": attack["queries"],
        **{f"option {name}": value for name, value in attack["options"].items()},
    }
