"""Evaluations: many images, several goals and budgets, and the numbers that come out."""

from brusle.evaluation.diagnosis import Finding
from brusle.evaluation.engines import Local, Setting
from brusle.evaluation.pairs import Manifest, choose
from brusle.evaluation.preflight import Preflight, check
from brusle.evaluation.runner import DEFAULT_PIXELS, evaluate
from brusle.evaluation.runs import Run
from brusle.evaluation.workload import GOALS
from brusle.lazy import submodules

__getattr__ = submodules(__name__)

__all__ = [
    "DEFAULT_PIXELS",
    "GOALS",
    "Finding",
    "Local",
    "Manifest",
    "Preflight",
    "Run",
    "Setting",
    "check",
    "choose",
    "evaluate",
]
