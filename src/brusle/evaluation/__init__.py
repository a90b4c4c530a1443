"""Evaluations: many images, several goals and budgets, and the numbers that come out."""

from brusle.evaluation.runner import DEFAULT_PIXELS, GOALS, Run, Setting, evaluate

__all__ = ["DEFAULT_PIXELS", "GOALS", "Run", "Setting", "evaluate"]
