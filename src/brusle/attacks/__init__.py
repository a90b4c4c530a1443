"""The attacks. One file, one paper, one class; and what combines them."""

from brusle.attacks.base import SparseAttack
from brusle.attacks.bayes_opt import BayesOpt
from brusle.attacks.brusle import BruSLe
from brusle.attacks.combined import Ensemble, Restarts
from brusle.attacks.external import External
from brusle.attacks.external.from_art import art
from brusle.attacks.external.from_foolbox import foolbox
from brusle.attacks.l0_hsja import L0HSJA
from brusle.attacks.minimal import Minimal, minimise
from brusle.attacks.names import ATTACKS, known_attacks, make, risk
from brusle.attacks.one_pixel import OnePixel
from brusle.attacks.pgd0 import PGD0
from brusle.attacks.pixel_bandit import PixelBandit
from brusle.attacks.pointwise import Pointwise
from brusle.attacks.sigma_zero import SigmaZero
from brusle.attacks.sparse_evo import SparseEvo
from brusle.attacks.sparse_rs import SparseRS
from brusle.attacks.standard import standard

__all__ = [
    "ATTACKS",
    "L0HSJA",
    "PGD0",
    "BayesOpt",
    "BruSLe",
    "Ensemble",
    "External",
    "Minimal",
    "OnePixel",
    "PixelBandit",
    "Pointwise",
    "Restarts",
    "SigmaZero",
    "SparseAttack",
    "SparseEvo",
    "SparseRS",
    "art",
    "foolbox",
    "known_attacks",
    "make",
    "minimise",
    "risk",
    "standard",
]
