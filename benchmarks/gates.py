"""How often a gate is wrong, and how many images it takes: the tables of docs/gates.md.

    python benchmarks/gates.py                                     # print them (some seconds)
    python benchmarks/gates.py --figures docs/figures/gates.json   # for the documentation

Where images are counted, probabilities are exact: a binomial sum, or the random walk of the counts,
played through image by image. Models are simulated besides, 2000 in each row, and judged by the
counts that `brusle gate` judges by.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import written
from numpy.typing import NDArray

from brusle.evaluation.gating.answers import Result
from brusle.evaluation.gating.counts import Drop, Robust
from brusle.evaluation.statistics import binomial

THRESHOLD, MOST, ALPHA, MODELS = 0.6, 400, 0.05, 2000
DROP, PAIRED = 0.05, 300
RATES = (0.40, 0.45, 0.50, 0.55, 0.60, 0.65, 0.70, 0.75, 0.80)

# by number of images, from how many robust ones on it passes, and up to how many it fails
Boundaries = list[tuple[int, int]]


@cache
def boundaries(in_turn: bool, threshold: float = THRESHOLD) -> Boundaries:
    """Where the verdict on so many images turns; it is monotone in the robust ones."""
    found: Boundaries = [(1, -1)]
    for count in range(1, MOST + 1):
        results = [_result(robust, count, in_turn, threshold) for robust in range(count + 1)]
        passes = [robust for robust, result in enumerate(results) if result == "pass"]
        fails = [robust for robust, result in enumerate(results) if result == "fail"]
        found.append((min(passes, default=count + 1), max(fails, default=-1)))
    return found


def _result(robust: int, count: int, in_turn: bool, threshold: float) -> Result:
    return Robust(
        threshold, (ALPHA, ALPHA), in_turn, counts=[robust, count - robust], count=count
    ).result()


def at_once(rate: float, count: int = MOST) -> tuple[float, float]:
    """Probability of a pass and of a failure, if images are a sample of a fixed number."""
    upper, lower = boundaries(False)[count]
    return binomial.at_least(upper, count, rate), binomial.at_most(lower, count, rate)


def one_by_one(
    chance: Callable[[NDArray[np.int64], int], NDArray[np.float64]], walls: Boundaries
) -> tuple[float, float, float]:
    """Probability of a pass and of a failure at any time, and the mean number of images.

    Args:
        chance: that the next image is robust, after so many robust ones of so many.
        walls: where it stops.
    """
    mass, robust = np.zeros(MOST + 2), np.arange(MOST + 2)
    mass[0] = 1.0
    passed = failed = images = 0.0
    for count in range(1, MOST + 1):
        images += float(mass.sum())
        up = mass * np.where(mass > 0, chance(robust, count - 1), 0.0)
        mass = mass - up + np.concatenate([[0.0], up[:-1]])
        upper, lower = walls[count]
        passed, failed = passed + float(mass[upper:].sum()), failed + float(mass[: lower + 1].sum())
        mass[upper:], mass[: lower + 1] = 0.0, 0.0
    return passed, failed, images


def drawn(rate: float) -> Callable[[NDArray[np.int64], int], NDArray[np.float64]]:
    """Images out of a large population."""
    return lambda robust, _: np.full(len(robust), rate)


def dealt(robust_ones: int) -> Callable[[NDArray[np.int64], int], NDArray[np.float64]]:
    """Images out of a data set that is used to the last, with so many robust ones."""
    return lambda robust, count: np.clip((robust_ones - robust) / (MOST - count), 0, 1)


def verdicts_table() -> list[list[str]]:
    """Exact probabilities by the true robust accuracy."""
    rows = [["truly robust", "400 at once: pass", "fail", "in turn: pass", "fail", "images, mean"]]
    for rate in RATES:
        fixed, (passed, failed, images) = at_once(rate), one_by_one(drawn(rate), boundaries(True))
        shares = [_percent(share) for share in (*fixed, passed, failed)]
        rows.append([f"{100 * rate:g} %", *shares, f"{images:.0f}"])
    return rows


def errors_table() -> list[list[str]]:
    """The worst that can happen, exactly: a model that is all but robust enough, or just is."""
    fixed, turn = at_once(THRESHOLD), one_by_one(drawn(THRESHOLD), boundaries(True))
    whole = one_by_one(dealt(round(THRESHOLD * MOST)), boundaries(True))
    peeking = one_by_one(drawn(THRESHOLD), boundaries(False))
    return [
        ["truly robust: the threshold itself", "false passes", "false failures"],
        ["400 images at once", *map(_percent, fixed)],
        ["in turn, out of a large population", *map(_percent, turn[:2])],
        ["in turn, a data set of 400 to the last image", *map(_percent, whole[:2])],
        ["(bounds for 400 at once, looked at after every image)", *map(_percent, peeking[:2])],
    ]


def models_table() -> list[list[str]]:
    """Simulated models: how many verdicts were false."""
    rng = np.random.default_rng(0)
    at, near = np.full(MODELS, THRESHOLD), rng.uniform(0.5, 0.7, MODELS)
    rows = [["2000 simulated models", "could pass falsely", "did", "could fail falsely", "did"]]
    for name, rates in (("just at the threshold", at), ("50 to 70 % robust", near)):
        hits = np.cumsum(rng.random((MODELS, MOST)) < rates[:, None], axis=1)
        for how, in_turn in (("at once", False), ("in turn", True)):
            verdicts = [_first(mine, in_turn) for mine in hits]
            rows.append([f"{name}, {how}", *_false(verdicts, rates <= THRESHOLD, rates)])
    drops = rng.uniform(0.0, 0.1, MODELS)
    for name, true in (("drop just at 5 points", np.full(MODELS, DROP)), ("0 to 10 points", drops)):
        for how, in_turn in (("at once", False), ("in turn", True)):
            verdicts = [_drop(drop, in_turn, rng) for drop in true]
            rows.append([f"{name}, {how}", *_false(verdicts, true >= DROP, -true, -DROP)])
    return rows


def _first(hits: NDArray[np.int64], in_turn: bool) -> Result:
    """The first verdict on images in turn, or the only one on all."""
    for count in range(1, MOST + 1) if in_turn else [MOST]:
        upper, lower = boundaries(in_turn)[count]
        if hits[count - 1] >= upper:
            return "pass"
        if hits[count - 1] <= lower:
            return "fail"
    return "undecided"


def _drop(drop: float, in_turn: bool, rng: np.random.Generator) -> Result:
    """The verdict on a model and its baseline, of which a random share of the images differs."""
    differ = drop + (0.4 - drop) * rng.random()
    chances = [(differ + drop) / 2, (differ - drop) / 2, 1 - differ]
    fates = rng.choice(3, PAIRED, p=chances)
    lost, gained = np.cumsum(fates == 0), np.cumsum(fates == 1)
    for count in range(10, PAIRED + 1, 10) if in_turn else [PAIRED]:
        result = _paired(int(lost[count - 1]), int(gained[count - 1]), count, in_turn)
        if result != "undecided":
            return result
    return "undecided"


@cache
def _paired(lost: int, gained: int, count: int, in_turn: bool) -> Result:
    both = [lost, gained]
    return Drop(
        DROP, (ALPHA, ALPHA), in_turn, counts=both, count=count, worst=both, best=both
    ).result()


def _false(
    verdicts: Sequence[Result],
    bad: NDArray[np.bool_],
    values: NDArray[np.float64],
    threshold: float = THRESHOLD,
) -> list[str]:
    """How many could be wrong and were; who is just at the threshold counts on both sides."""
    good = values >= threshold
    passes = sum(v == "pass" for v, b in zip(verdicts, bad, strict=True) if b)
    fails = sum(v == "fail" for v, g in zip(verdicts, good, strict=True) if g)
    found = ((int(bad.sum()), passes), (int(good.sum()), fails))
    return [text for many, n in found for text in (str(many), f"{n} ({_percent(n / many)})")]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    written.add_option(parser)
    args = parser.parse_args()
    tables = {"verdicts": verdicts_table(), "errors": errors_table(), "models": models_table()}
    for rows in tables.values():
        print(written.markdown(rows), end="\n\n")
    written.write(args.figures, tables)


if __name__ == "__main__":
    main()
