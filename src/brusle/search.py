"""What the author of an attack reads: how a search proposes and learns, and what an attack is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from brusle.goals import Loss, Output
from brusle.problems import Candidates, Edits, Problems
from brusle.rows import Rows

if TYPE_CHECKING:
    from brusle.session import Session

Needs = Literal["labels", "scores", "gradients"]


@dataclass(frozen=True)
class Feedback:
    """What a search learns from one round; one entry per live problem.

    Attributes:
        loss: ``(n,)`` float64, lower is better; NaN where the victim failed.
        reached: ``(n,)`` bool: the goal is reached, whatever the number of pixels.
        scores: ``(n, classes)`` as the victim gave them; for an attack that needs labels only, 1
            for the label and 0 for all others, and ``loss`` follows from that.
        gradient: ``(n, h * w, c)`` of the loss with respect to the candidates, for attacks that
            need it.
        output: what ``scores`` are.
        randomised: the victim may answer the same candidate in another way.
    """

    loss: Tensor
    reached: Tensor
    scores: Tensor
    gradient: Tensor | None = None
    output: Output = "logits"
    randomised: bool = False


class Search(Rows):
    """The state of an attack on many problems, and how it proposes and learns.

    Subclasses are dataclasses (see `Rows`); what is not per problem goes into fields that are
    not tensors.
    """

    def ask(self) -> Candidates:
        """Propose one candidate per live problem."""
        raise NotImplementedError

    def initial(self) -> Tensor:
        """``(n,)`` bool: which of the candidates just asked belong to the initialisation."""
        raise NotImplementedError

    def returnable(self) -> Tensor:
        """``(n,)`` bool: which of the candidates just asked an attack that returns its last may.

        Probes, which only find out where to go, it may not.
        """
        return torch.ones_like(self.initial())

    def tell(self, feedback: Feedback) -> None:
        """Learn what the candidates just asked have scored."""
        raise NotImplementedError

    def resume_from(self, edits: Edits) -> None:
        """Begin with these edits, as many as the budget, instead of with chance.

        Called before the first `ask`, whose candidate they then are. Only `brusle.minimise` wants
        it: without it every budget would be searched from scratch.
        """
        raise NotImplementedError


class Attack(Protocol):
    """What a session needs of an attack, be it one search or several."""

    @property
    def pixels(self) -> int: ...
    @property
    def queries(self) -> int: ...
    @property
    def shortest(self) -> int:
        """Queries of the shortest of its searches: each must pay for at least one answer."""

    @property
    def needs(self) -> Needs:
        """What the victim must give."""

    def check(self, problems: Problems) -> None: ...
    def conduct(self, session: Session) -> None:
        """Run the searches that the attack consists of, and keep what they find."""


class Searching(Attack, Protocol):
    """What the loop needs of an attack that is one search."""

    @property
    def returns_last(self) -> bool:
        """Whether a failure returns the last candidate instead of the best.

        If the attack shrinks, the last one that is adversarial.
        """

    @property
    def checks_initial(self) -> bool:
        """Whether a success among the initial queries ends the attack."""

    @property
    def dense(self) -> bool:
        """Whether candidates are whole images (`Dense`) and not `Edits`."""

    @property
    def shrinks(self) -> bool:
        """Whether candidates may have more pixels than the budget, on the way to fewer.

        Such an attack is dense, the best candidate is the adversarial one with the fewest
        changed pixels, and its loss is that number.
        """

    @property
    def needs_start(self) -> bool:
        """Whether the search begins at an adversarial image, whatever its distance."""

    def loss_for(self, targeted: bool) -> Loss: ...
    def start(self, problems: Problems, seed: int, restart: int) -> Search: ...
