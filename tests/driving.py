"""Searches as the loop drives them, for tests that look at single steps."""

from typing import Any

import torch
from torch import Tensor

from brusle.problems import Candidates, Edits, Problems
from brusle.scores import Scores
from brusle.search import Feedback, Search, SearchAttack


class Driven:
    """Asks and tells a search, and counts the steps; everything else is the search's own."""

    def __init__(self, search: Search, problems: int, resumes_at: int = 0) -> None:
        self.search = search
        self.step = torch.zeros(problems, dtype=torch.int64)
        self.resumes_at = resumes_at

    def ask(self) -> Candidates:
        return self.search.ask(self.step)

    def tell(self, feedback: Feedback) -> None:
        self.search.tell(self.step, feedback)
        self.step = self.step + 1

    def initial(self) -> Tensor:
        return self.search.initial(self.step)

    def resume(self, edits: Edits) -> Candidates | None:
        self.step = self.step + self.resumes_at
        return self.search.resume(edits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.search, name)


def begin(attack: SearchAttack, problems: Problems, seed: int = 0, restart: int = 0) -> Driven:
    """Start a search on ``problems``."""
    search = attack.start(problems, seed, restart)
    return Driven(search, len(problems), attack.behaviour.resumes_at)


def feedback(
    loss: Tensor, reached: Tensor, scores: Tensor, gradient: Tensor | None = None
) -> Feedback:
    """What a search is told, of scores that are logits."""
    return Feedback(loss, reached, Scores(scores), gradient)
