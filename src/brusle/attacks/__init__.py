"""The attacks. One file, one paper, one class."""

from brusle.attacks.brusle import BruSLe
from brusle.attacks.combined import Ensemble, Restarts
from brusle.attacks.minimal import Minimal, minimise
from brusle.attacks.names import ATTACKS, make

__all__ = ["ATTACKS", "BruSLe", "Ensemble", "Minimal", "Restarts", "make", "minimise"]
