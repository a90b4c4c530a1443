"""Evaluations: many images, several goals and budgets, and the numbers that come out."""

from brusle.evaluation.gating import Gate, Verdict, gate
from brusle.evaluation.record import Setting
from brusle.evaluation.running.diagnosis import Finding
from brusle.evaluation.running.engines import Local
from brusle.evaluation.running.evaluate import evaluate
from brusle.evaluation.running.pairs import choose
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.running.preflight import Preflight, check
from brusle.evaluation.running.ray_engine import Ray
from brusle.evaluation.storing.manifest import Manifest
from brusle.evaluation.storing.runs import Run
from brusle.lazy import submodules

__getattr__ = submodules(__name__)

__all__ = [
    "Finding",
    "Gate",
    "Local",
    "Manifest",
    "Plan",
    "Preflight",
    "Ray",
    "Run",
    "Setting",
    "Verdict",
    "check",
    "choose",
    "evaluate",
    "gate",
]
