"""The attacks. One file, one paper, one class."""

from brusle.attacks.brusle import BruSLe
from brusle.attacks.names import ATTACKS, make

__all__ = ["ATTACKS", "BruSLe", "make"]
