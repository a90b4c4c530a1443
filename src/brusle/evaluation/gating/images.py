"""What became of each image under the attacks that a gate is about."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brusle.evaluation.gating.questions import At
from brusle.evaluation.record import Row, Setting
from brusle.evaluation.statistics.counting import stands
from brusle.evaluation.storing.runs import Run
from brusle.outcomes import ANSWERED

Image = tuple[int, str]  # label and hash: the same in every run
Fate = bool | None  # whether it withstood; None if nobody knows


@dataclass(frozen=True)
class Fates:
    """What became of the images of a run.

    Attributes:
        of: by image, in the order in which they were looked at.
        in_turn: whether images were attacked only until something was decided, so that what was
            seen depends on when that was.
    """

    of: Mapping[Image, Fate]
    in_turn: bool


def fates(run: Run, settings: Sequence[Setting], at: At) -> Fates:
    """Under the worst of some settings: an image is robust if nothing fooled it.

    Several targets and seeds are other attempts at the same image, not other images. An image that
    has no usable answer to one of the attempts, and was fooled by none, is unknown.
    """
    known, sequence = run.store.images(), run.store.sequence()
    attempts = [_by_image(run.stored(setting), known) for setting in settings]
    asked = [known[name] for name in sequence]
    if not asked:
        asked = [image for mine in attempts for image in mine]
        if any(_is_unfinished(run, setting) for setting in settings):
            asked += known.values()
    pairs = list(zip(settings, attempts, map(_attempts, attempts), strict=True))
    of = {
        image: _worst([_fate(mine.get(image, ()), many, one, at) for one, mine, many in pairs])
        for image in asked
    }
    return Fates(of, bool(sequence))


def _is_unfinished(run: Run, setting: Setting) -> bool:
    return len(run.stored(setting)) < setting.problems


def _by_image(rows: Sequence[Row], known: Mapping[str, Image]) -> dict[Image, list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[known[row.image]].append(row)
    return found


def _attempts(found: Mapping[Image, Sequence[Row]]) -> int:
    """How many rows an image has, of a setting: one for each target."""
    return max(map(len, found.values()), default=1)


def _fate(rows: Sequence[Row], many: int, setting: Setting, at: At) -> Fate:
    queries = math.inf if setting.minimal or at.queries is None else at.queries
    pixels = at.pixels if setting.minimal else math.inf
    answered = [row for row in rows if row.status in ANSWERED]
    if not all(stands(row, queries, pixels) for row in answered):
        return False
    return True if len(answered) == many else None


def _worst(found: Sequence[Fate]) -> Fate:
    if False in found:
        return False
    return None if None in found else True
