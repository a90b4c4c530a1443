"""Evaluations: many images, several goals and budgets, and the numbers that come out."""

from brusle.evaluation.pairs import Manifest, choose
from brusle.evaluation.preflight import Finding, Preflight, check
from brusle.evaluation.runner import DEFAULT_PIXELS, GOALS, Run, Setting, evaluate

__all__ = [
    "DEFAULT_PIXELS",
    "GOALS",
    "Finding",
    "Manifest",
    "Preflight",
    "Run",
    "Setting",
    "check",
    "choose",
    "evaluate",
]
