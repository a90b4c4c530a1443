"""Which attacks of a run somebody means who names an image, an attack or a setting."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from brusle.errors import DataError, InputError
from brusle.evaluation.record import Row, Setting
from brusle.evaluation.storing.runs import Run
from brusle.files import file_name
from brusle.names import hint
from brusle.text import brief, shortened

_MOST_NAMED = 12  # settings in a message


@dataclass(frozen=True)
class Chosen:
    """One attack on one image.

    Attributes:
        setting: the attack, with its budgets and its goal.
        row: what became of it.
    """

    setting: Setting
    row: Row

    @property
    def file_name(self) -> str:
        """The name of a file about it; no other attack of its setting has the same."""
        aim = "" if self.row.target is None else f"-to-{self.row.target}"
        return f"{file_name(self.row.image)}{aim}"


def choose(
    run: Run,
    images: Sequence[str] = (),
    attack: str | None = None,
    setting: int | None = None,
    target: int | None = None,
) -> list[Chosen]:
    """The attacks that fit all of what is said, setting by setting; raise if there is none.

    Args:
        run: the run.
        images: names of images; none is all.
        attack: name of an attack, as tables or as commands have it; None is all.
        setting: number of a setting (`Setting.number`); None is all.
        target: label to reach; None is any.
    """
    settings = _settings(run, attack, setting)
    found = [Chosen(one, row) for one in settings for row in run.stored(one)]
    known = {one.row.image for one in found}
    for name in images:
        if name not in known:
            where = "" if settings == run.settings else " of what was chosen"
            raise InputError(
                f"the run has no image {brief(name)}{where}{hint(name, sorted(known))}"
            )
    found = [one for one in found if not images or one.row.image in images]
    if target is not None:
        aims = sorted({str(one.row.target) for one in found})
        found = [one for one in found if one.row.target == target]
        if not found:
            raise InputError(f"no attack has the target {target}: there are {', '.join(aims)}")
    if not found:
        raise DataError("no attack is stored yet: wait for the first")
    return found


def few(run: Run, chosen: Iterable[Chosen], most: int) -> list[Chosen]:
    """Some of many: successes, of different settings and of different images where there are.

    If nothing was fooled, they are others that were attacked.

    Args:
        run: the run.
        chosen: the many.
        most: how many.
    """
    attacked = [one for one in chosen if one.row.queries > 0]
    pool = [one for one in attacked if one.row.status == "success"] or attacked
    taken: list[Chosen] = []
    used: Counter[object] = Counter()
    while pool and len(taken) < most:
        best = min(pool, key=lambda one: (used[one.setting.number], used[one.row.image]))
        pool.remove(best)
        taken.append(best)
        used.update((best.setting.number, best.row.image))
    order = {setting.number: at for at, setting in enumerate(run.settings)}
    return sorted(taken, key=lambda one: order[one.setting.number])


def listed_settings(settings: Sequence[Setting]) -> str:
    """Settings with their numbers, for a message."""
    named = [f"{one.number} ({shortened(one.title)})" for one in settings[:_MOST_NAMED]]
    more = len(settings) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _settings(run: Run, attack: str | None, number: int | None) -> list[Setting]:
    found = list(run.settings)
    if number is not None:
        found = [one for one in found if one.number == number]
        if not found:
            raise InputError(
                f"the run has no setting {number}: known are {listed_settings(run.settings)}"
            )
    if attack is not None:
        wanted = _letters(attack)
        named = [one for one in found if wanted == _letters(one.name)]
        named = named or [
            one for one in found if wanted in (_letters(one.attack), _letters(one.kind))
        ]
        if not named:
            names = list(dict.fromkeys(one.attack for one in found))
            raise InputError(f"the run has no attack {brief(attack)}{hint(attack, names)}")
        found = named
    return found


def _letters(name: str) -> str:
    """A name without what differs between tables and commands: PixelBandit is pixel-bandit."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())
