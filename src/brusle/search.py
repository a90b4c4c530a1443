"""What the author of an attack reads: what an attack is, and how its search proposes and learns.

An attack is hyper-parameters and a way to start a `Search`. A search is the state of many problems
at once: it proposes a candidate for each (`ask`) and learns what the victim said (`tell`). Which
query it is (``step``), a warm start, stopping, counting, the best image so far and its verification
are the loop's business (`session`, `batching`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from brusle.problems import Candidates, Edits, Problems
from brusle.rows import Rows
from brusle.scores import Loss, Meaning, Scores

if TYPE_CHECKING:
    from brusle.session import Session

Needs = Literal["labels", "scores", "gradients"]


@dataclass(frozen=True)
class Behaviour:
    """What the loop must know of an attack.

    Attributes:
        needs: what the victim must give.
        dense: candidates are whole images (`Dense`) and not `Edits`.
        shrinks: candidates may have more pixels than the budget, on the way to fewer. Such an
            attack is dense, its best candidate is the adversarial one with the fewest changed
            pixels, and its loss is that number.
        needs_start: the search begins at an adversarial image, whatever its distance.
        returns_last: a failure returns the last candidate instead of the best; if the attack
            shrinks, the last one that is adversarial.
        checks_initial: a success among the initial queries ends the attack.
        resumes_at: the step that a warm start takes: the last of an initialisation that it makes
            superfluous, or the first of one that goes on.
        goes_on: problems are worked on when they are broken, too.
        believes: what the search believes of each pixel (`Search.belief`), in the words of the
            attack's paper; empty if it keeps no such number.
    """

    needs: Needs = "scores"
    dense: bool = False
    shrinks: bool = False
    needs_start: bool = False
    returns_last: bool = False
    checks_initial: bool = True
    resumes_at: int = 0
    goes_on: bool = False
    believes: str = ""


@dataclass(frozen=True)
class Feedback:
    """What a search learns from one round; one entry per live problem.

    Attributes:
        loss: ``(n,)`` float64, lower is better; NaN where the victim failed.
        reached: ``(n,)`` bool: the goal is reached, whatever the number of pixels.
        scores: as the victim gave them; for an attack that needs labels only, 1 for the label and
            0 for all others, and ``loss`` follows from that.
        gradient: ``(n, h * w, c)`` of the loss with respect to the candidates, for attacks that
            need it.
        randomised: the victim may answer the same candidate in another way.
    """

    loss: Tensor
    reached: Tensor
    scores: Scores
    gradient: Tensor | None = None
    randomised: bool = False


class Search(Rows):
    """The state of an attack on many problems, and how it proposes and learns.

    Subclasses are dataclasses (see `Rows`). ``step`` is an ``(n,)`` tensor: how many queries the
    search has spent on each problem before.
    """

    def ask(self, step: Tensor) -> Candidates:
        """Propose one candidate per live problem."""
        raise NotImplementedError

    def tell(self, step: Tensor, feedback: Feedback) -> None:
        """Learn what the candidates just asked have scored."""
        raise NotImplementedError

    def initial(self, step: Tensor) -> Tensor:
        """``(n,)`` bool: which of these queries belong to the initialisation; none, as a rule."""
        return torch.zeros_like(step, dtype=torch.bool)

    def returnable(self, step: Tensor) -> Tensor:
        """``(n,)`` bool: which of the candidates just asked an attack that returns its last may.

        Probes, which only find out where to go, it may not.
        """
        return torch.ones_like(step, dtype=torch.bool)

    def resume(self, edits: Edits) -> Candidates | None:
        """Go on from ``edits``, as many as the budget, instead of from chance.

        Called before the first `ask`. What is returned is asked in its place, and `tell` then says
        what it scored. None if the search cannot do that: it begins as usual. Only
        `brusle.minimise` wants it; without it every budget would be searched from scratch.
        """
        return None

    def prepare(self, answers: Tensor, classes: int) -> None:
        """Called once, before anything is asked.

        Args:
            answers: ``(n,)`` how many answers each problem can pay for.
            classes: how many classes the victim has.
        """

    def ended(self) -> dict[int, str]:
        """Problems that the search itself has nothing more to ask about, after `prepare` or `tell`.

        Their places, and what has gone wrong; an empty text if nothing has. None, as a rule: the
        loop ends a search, by a success or when the queries are spent.
        """
        return {}

    def leave(self, places: Tensor) -> None:
        """The problems at these places are finished: give back what they hold, such as threads."""

    def belief(self) -> Tensor:
        """``(n, h * w)``: what was learned about each pixel, for whoever watches.

        Only searches of attacks that say what it is (`Behaviour.believes`) need it.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Round:
    """One query for each live problem of a search, for whoever watches (``on_round``).

    Attributes:
        attack: whose search it is.
        search: as it is after it was told.
        rows: ``(n,)`` numbers of the problems, on the CPU.
        step: ``(n,)`` queries that the search had spent on them before.
        candidates: what was asked.
        feedback: what was answered.
        loss: ``(n,)`` by which candidates are the best so far: that of the feedback or, of an
            attack that shrinks, the number of changed pixels; NaN where that is none.
        kept: ``(n,)`` bool: the candidate is what the search would now return.
        queries: ``(n,)`` queries of the attack that are booked to each problem by now, on the CPU.
        number: which search of the session it is, from 0.
    """

    attack: SearchAttack
    search: Search
    rows: Tensor
    step: Tensor
    candidates: Candidates
    feedback: Feedback
    loss: Tensor
    kept: Tensor
    queries: Tensor
    number: int


class Attack(Protocol):
    """What a session needs of an attack, be it one search or several."""

    @property
    def pixels(self) -> int:
        """The budget: most pixels that may differ from the original."""

    @property
    def queries(self) -> int:
        """The limit: most queries per image."""

    @property
    def shortest(self) -> int:
        """Queries of the shortest of its searches: each must pay for at least one answer."""

    @property
    def behaviour(self) -> Behaviour:
        """What the loop must know of it."""

    @property
    def label(self) -> str:
        """The name, for tables."""

    def wants_start(self, targeted: bool) -> bool:
        """Whether an evaluation should give starting images."""

    def check(self, problems: Problems) -> None:
        """Raise if the options do not fit the images."""

    def conduct(self, session: Session) -> None:
        """Run the searches that the attack consists of, and keep what they find."""


class SearchAttack(Attack, Protocol):
    """What the loop needs of an attack that is one search."""

    def loss_for(self, targeted: bool, meaning: Meaning) -> Loss:
        """The loss that the search follows on such scores."""

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Begin a search on ``problems``."""
