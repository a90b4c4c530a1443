"""Evaluations: many images, several goals and budgets, and the numbers that come out."""

from brusle.evaluation.record import Setting
from brusle.evaluation.running.diagnosis import Finding
from brusle.evaluation.running.engines import Local
from brusle.evaluation.running.preflight import Preflight, check
from brusle.evaluation.running.runner import DEFAULT_PIXELS, evaluate
from brusle.evaluation.running.workload import GOALS
from brusle.evaluation.storing.manifest import Manifest, choose
from brusle.evaluation.storing.runs import Run
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
