"""Attacks by name, as the command line gives them: ``brusle:palette=uniform,colours=2``."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from brusle.attacks.base import SparseAttack
from brusle.attacks.bayes_opt import BayesOpt
from brusle.attacks.brusle import BruSLe
from brusle.attacks.combined import Restarts
from brusle.attacks.l0_hsja import L0HSJA
from brusle.attacks.minimal import Minimal
from brusle.attacks.one_pixel import OnePixel
from brusle.attacks.options import check_count
from brusle.attacks.pgd0 import PGD0
from brusle.attacks.pixel_bandit import PixelBandit
from brusle.attacks.pointwise import Pointwise
from brusle.attacks.sigma_zero import SigmaZero
from brusle.attacks.sparse_evo import SparseEvo
from brusle.attacks.sparse_rs import SparseRS
from brusle.errors import InputError
from brusle.names import hint, plain_value

ATTACKS: dict[str, type[SparseAttack]] = {
    "brusle": BruSLe,
    "pixel-bandit": PixelBandit,
    "sparse-rs": SparseRS,
    "sparse-evo": SparseEvo,
    "pointwise": Pointwise,
    "l0-hsja": L0HSJA,
    "one-pixel": OnePixel,
    "bayes-opt": BayesOpt,
    "pgd0": PGD0,
    "sigma-zero": SigmaZero,
}


def make(
    spec: str, pixels: int, queries: int, minimal: bool = False
) -> SparseAttack | Restarts | Minimal:
    """Build the attack that ``spec`` describes.

    Args:
        spec: a name of `ATTACKS`, optionally with ``:option=value,option=value``; the option
            ``restarts`` is known to all.
        pixels: the pixel budget.
        queries: the query limit, over all restarts or tries.
        minimal: look for the fewest pixels, with a fifth of the queries for each try.
    """
    name, _, rest = spec.partition(":")
    if name not in ATTACKS:
        raise InputError(f"unknown attack {name!r}{hint(name, ATTACKS)}")
    options: dict[str, Any] = {}
    budgets = ("pixels", "queries")
    known = [f.name for f in fields(ATTACKS[name]) if f.name not in budgets] + ["restarts"]
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if key not in known:
            raise InputError(f"{name} has no option {key!r}{hint(key, known)}")
        if not equals:
            raise InputError(f"option {key!r} of {name} has no value: write {key}=VALUE")
        options[key] = plain_value(value)
    times = options.pop("restarts", 1)
    check_count("restarts", times)
    if times > queries:
        raise InputError(f"{queries} queries are not enough for {times} restarts")
    if minimal and times > 1:
        raise InputError("a minimal search restarts by itself: leave restarts out")
    each = max(1, queries // 5) if minimal else queries // times
    attack = ATTACKS[name](**options | {"pixels": pixels, "queries": each})
    if minimal:
        return Minimal(attack, queries)
    return Restarts(attack, times) if times > 1 else attack
