"""What happened to one image, to look at: what was changed, what the victim saw, how it was found.

    explained = brusle.explain(run, image="cat")            # or an AttackResult, and its victim
    explained.figure().savefig("cat.png")                   # or explained.save("pictures")
    explained.original, explained.dissimilarity, explained.trace.beliefs

docs/explain.md says what each panel is.
"""

from brusle.explaining.entry import explain
from brusle.explaining.explanation import Explanation

__all__ = ["Explanation", "explain"]
