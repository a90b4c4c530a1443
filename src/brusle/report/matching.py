"""Which settings of two runs, or of two attacks, belong together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from brusle.evaluation.record import Setting

Counterparts = tuple[Setting, Setting]  # the setting that is compared with, and the one compared


def match(first: Sequence[Setting], second: Sequence[Setting]) -> list[Counterparts]:
    """Settings that belong together, each once.

    Those of the same goal, pixels, seed, eot and attack, and if possible the same query limit; of
    the rest, those that but for their seed are the only ones of their run with this goal and number
    of pixels, with the same seed, or whatever the seed if there is one setting each. A search for
    the fewest pixels belongs to another such search only.
    """
    left, right, pairs = list(first), list(second), []
    for same_limit in (True, False):
        for mine in list(left):
            for yours in right:
                alike = _place(mine) == _place(yours) and mine.attack == yours.attack
                if alike and (mine.queries == yours.queries or not same_limit):
                    pairs.append((mine, yours))
                    left.remove(mine)
                    right.remove(yours)
                    break
    for mine in left:
        ours = [s for s in first if _budget(s) == _budget(mine)]
        theirs = [s for s in second if _budget(s) == _budget(mine)]
        if len({s.family for s in ours}) == len({s.family for s in theirs}) == 1:
            single = len(ours) == len(theirs) == 1
            pairs += [(mine, yours) for yours in theirs if single or mine.seed == yours.seed]
    return sorted(pairs, key=lambda pair: list(first).index(pair[0]))


def against(
    baseline: Sequence[Setting], others: Sequence[Setting]
) -> tuple[list[Counterparts], list[Setting]]:
    """Settings beside those of a baseline that were run likewise, and those that have none.

    They are alike in goal, pixels, seed and eot, and if possible in the query limit.
    """
    pairs, alone = [], []
    for other in others:
        same = [setting for setting in baseline if _place(setting) == _place(other)]
        same.sort(key=lambda setting: setting.queries != other.queries)
        if same:
            pairs.append((same[0], other))
        else:
            alone.append(other)
    return pairs, alone


def by_seed(pairs: Iterable[Counterparts]) -> list[tuple[Counterparts, ...]]:
    """Pairs that differ in their seed alone, together."""
    found: dict[tuple[object, ...], list[Counterparts]] = {}
    for mine, yours in pairs:
        found.setdefault((mine.family, yours.family), []).append((mine, yours))
    return [tuple(family) for family in found.values()]


def _budget(setting: Setting) -> tuple[str, int, bool]:
    return setting.goal, setting.pixels, setting.minimal


def _place(setting: Setting) -> tuple[object, ...]:
    return *_budget(setting), setting.seed, setting.eot
