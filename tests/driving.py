"""A search as the loop drives it, for tests that look at single steps: it counts the steps."""

from typing import Any

import torch

from brusle.problems import Candidates, Edits
from brusle.search import Feedback, Search


class Driven:
    """Asks and tells a search; everything else is the search's own."""

    def __init__(self, search: Search, problems: int, resumes_at: int = 0) -> None:
        self.search = search
        self.step = torch.zeros(problems, dtype=torch.int64)
        self.resumes_at = resumes_at

    def ask(self) -> Candidates:
        return self.search.ask(self.step)

    def tell(self, feedback: Feedback) -> None:
        self.search.tell(self.step, feedback)
        self.step = self.step + 1

    def initial(self) -> torch.Tensor:
        return self.search.initial(self.step)

    def resume(self, edits: Edits) -> Candidates | None:
        self.step = self.step + self.resumes_at
        return self.search.resume(edits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.search, name)
