"""The standard ensemble: what an evaluation should at least withstand."""

from __future__ import annotations

from brusle.attacks.base import SparseAttack
from brusle.attacks.brusle import BruSLe
from brusle.attacks.combined import Ensemble
from brusle.attacks.pgd0 import PGD0
from brusle.attacks.pixel_bandit import PixelBandit
from brusle.attacks.pointwise import Pointwise
from brusle.attacks.sigma_zero import SigmaZero
from brusle.attacks.sparse_evo import SparseEvo
from brusle.attacks.sparse_rs import SparseRS
from brusle.victim import Victim, traits


def standard(victim: Victim, pixels: int, queries: int) -> Ensemble:
    """The ensemble of ``brusle evaluate --standard``: what an evaluation should at least withstand.

    A differentiable victim meets white-box attacks first, which are cheap and break most images,
    then the black-box ones, which do not trust gradients. A victim that gives scores only meets
    the latter, one that gives labels only the decision-based attacks.

    Args:
        victim: the victim; what it gives decides what it meets.
        pixels: the pixel budget.
        queries: the query limit of each attack.
    """
    if traits(victim).gives == "label":
        members: list[SparseAttack] = [SparseEvo(pixels, queries), Pointwise(pixels, queries)]
        return Ensemble(members, "Standard")
    members = [
        PixelBandit(pixels, queries),
        BruSLe(pixels, queries),
        SparseRS(pixels, queries),
    ]
    if traits(victim).differentiable:
        members = [SigmaZero(pixels, queries), PGD0(pixels, queries), *members]
    return Ensemble(members, "Standard")
