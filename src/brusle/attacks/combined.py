"""Several searches as one attack: restarts of the same one, or an ensemble of different ones.

An image that one search breaks is not given to the next, so the result is the worst case over the
searches, image by image, as in AutoAttack (Croce and Hein, ICML 2020). All queries count: those of
an image are the sum over the searches that it went through, and the limit is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brusle.attacks.base import BaseAttack, SparseAttack
from brusle.attacks.options import Count
from brusle.batching import Found
from brusle.errors import InputError
from brusle.problems import Problems
from brusle.search import Behaviour, Needs
from brusle.session import Session

_RANKS: tuple[Needs, ...] = ("labels", "scores", "gradients")


@dataclass(frozen=True)
class Wrapper(BaseAttack):
    """What attacks share that run one other attack several times.

    Attributes:
        attack: the other attack.
    """

    attack: SparseAttack

    @property
    def pixels(self) -> int:
        """The attack's budget."""
        return self.attack.pixels

    @property
    def shortest(self) -> int:
        """Each time has the attack's queries."""
        return self.attack.queries

    @property
    def behaviour(self) -> Behaviour:
        """That of the attack."""
        return self.attack.behaviour

    def wants_start(self, targeted: bool) -> bool:
        """As the attack."""
        return self.attack.wants_start(targeted)

    def check(self, problems: Problems) -> None:
        """Raise if the options do not fit the images."""
        self.attack.check(problems)


@dataclass(frozen=True)
class Restarts(Wrapper):
    """The same attack up to ``times`` times, each with other random numbers.

    Attributes:
        attack: the attack; its ``queries`` are for each time.
        times: how often.
    """

    times: Count

    @property
    def queries(self) -> int:
        """Of all times together."""
        return self.times * self.attack.queries

    @property
    def label(self) -> str:
        """For tables."""
        return f"{self.attack.label} x {self.times}"

    def conduct(self, session: Session) -> None:
        """Search again where nothing was found; of failures, keep the lowest loss."""
        for restart in range(self.times):

            def ended(found: Found, last: bool = restart == self.times - 1) -> None:
                session.keep_better(found)
                session.settle_final(found.rows, last)

            session.search(self.attack, restart=restart, on_finished=ended)


@dataclass(frozen=True)
class Ensemble(BaseAttack):
    """Different attacks with one pixel budget, each on the images that withstood those before.

    Attributes:
        attacks: in the order in which they run; each has its own query limit.
        name: for tables.
    """

    attacks: Sequence[SparseAttack]
    name: str = "Ensemble"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "attacks", tuple(self.attacks))
        if not self.attacks:
            raise InputError("an ensemble needs at least one attack")
        budgets = sorted({attack.pixels for attack in self.attacks})
        if len(budgets) > 1:
            raise InputError(
                f"the attacks of an ensemble have budgets of {budgets} pixels: give all the same, "
                f"or their worst case means nothing"
            )

    @property
    def pixels(self) -> int:
        """The budget of all."""
        return self.attacks[0].pixels

    @property
    def queries(self) -> int:
        """Of all attacks together."""
        return sum(attack.queries for attack in self.attacks)

    @property
    def shortest(self) -> int:
        """The fewest that one of them has."""
        return min(attack.queries for attack in self.attacks)

    @property
    def behaviour(self) -> Behaviour:
        """It needs the most that one of them needs; for the rest, each search has its own."""
        needs = (attack.behaviour.needs for attack in self.attacks)
        return Behaviour(needs=max(needs, key=_RANKS.index))

    def wants_start(self, targeted: bool) -> bool:
        """If one of them does."""
        return any(attack.wants_start(targeted) for attack in self.attacks)

    @property
    def label(self) -> str:
        """For tables."""
        return self.name

    def check(self, problems: Problems) -> None:
        """Raise if the options of one do not fit the images."""
        for attack in self.attacks:
            attack.check(problems)

    def conduct(self, session: Session) -> None:
        """One after the other; of failures, keep the first, since losses may differ in kind."""
        for turn, attack in enumerate(self.attacks):

            def ended(found: Found, turn: int = turn, by: str = attack.label) -> None:
                session.keep(found.pick(found.reached) if turn else found, by)
                session.settle_final(found.rows, turn == len(self.attacks) - 1)

            session.search(attack, on_finished=ended)
