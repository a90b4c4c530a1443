"""Gates: is a model robust enough, is it not, or are there too few images to tell?

`gate` answers a `Gate` from a stored run, by bounds and tests that are wrong no more often than
they say (docs/gates.md). `brusle.evaluate(..., until=Gate(...))` attacks no more images than the
answer needs.
"""

from brusle.evaluation.gating.answers import Answer, Result, Verdict
from brusle.evaluation.gating.judging import gate
from brusle.evaluation.gating.questions import At, Gate

__all__ = ["Answer", "At", "Gate", "Result", "Verdict", "gate"]
