"""One way to call an attack, whichever library it is called from.

Other libraries say less than an attack of brusle wants to know. Who gives targets gives no labels,
and ART may give neither. What is missing is then what the victim says to the clean image. That is a
query, and the attack begins with the same one: it is asked once, and the attack gets the answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from brusle.attacks.base import BaseAttack
from brusle.attacks.combined import Ensemble, Wrapper
from brusle.batching import default_batch_size
from brusle.errors import InputError, VictimUnavailable
from brusle.oracle import Oracle
from brusle.problems import Problems
from brusle.results import AttackResult
from brusle.search import Attack
from brusle.session import check_needs, run
from brusle.victim import Victim, check_shape

A = TypeVar("A", bound=BaseAttack)


@dataclass(frozen=True)
class Case:
    """Images that an attack is to be run on, as another library has handed them over.

    Attributes:
        attack: the attack.
        victim: whom it asks.
        images: ``(n, c, h, w)`` floats in [0, 1].
        starts: likewise, for the attacks that want starting images.
        seed: same seed, same result.
        batch_size: most images in one call; None chooses by image size.
    """

    attack: BaseAttack
    victim: Victim
    images: Tensor
    starts: Tensor | None = None
    seed: int = 0
    batch_size: int | None = None

    def leaving(self, labels: Any) -> AttackResult:
        """Attack, untargeted, what the victim says to be ``labels``."""
        return self.attack(
            self.victim,
            self.images,
            labels,
            seed=self.seed,
            batch_size=self.batch_size,
            starts=self.starts,
        )

    def reaching(self, targets: Any, look: Look | None = None) -> AttackResult:
        """Attack towards ``targets``, away from whatever the victim says to the clean images.

        Where it says the target already there is nothing to attack: the image is skipped.

        Args:
            targets: ``(n,)`` labels to reach, or one for all.
            look: what the victim says, if it was asked already.
        """
        targets = self.integers(targets)
        look = look or self.look(targeted=True)
        nothing = (look.labels == targets) | (look.labels < 0)
        labels = torch.where(nothing, (targets == 0).long(), look.labels)
        return self._run(self._problems(labels, targets), look)

    def leaving_predictions(self) -> AttackResult:
        """Attack, untargeted, whatever the victim says to the clean images."""
        look = self.look(targeted=False)
        return self._run(self._problems(look.labels.clamp_min(0)), look)

    def look(self, targeted: bool) -> Look:
        """Ask for the clean images, but not for an attack that cannot be run anyway."""
        problems = self._problems(0, 1 if targeted else None)
        self._plain.check(problems)
        check_needs(self._plain, self.victim)
        check_shape(problems.shape, self.victim)
        return Look(self.victim, problems.images, self._size)

    def integers(self, labels: Any, look: Look | None = None) -> Tensor:
        """``(n,)`` labels, checked, and against the classes if these are known."""
        problems = self._problems(labels)
        if look is not None:
            problems.check_classes(look.scores.shape[1])
        return problems.labels

    def _problems(self, labels: Any, targets: Any = None) -> Problems:
        return Problems.make(self.images, labels, targets, starts=self.starts)

    @property
    def _plain(self) -> Attack:
        return cast(Attack, self.attack)  # as every attack is that can be called

    @property
    def _size(self) -> int:
        _, c, h, w = self.images.shape
        if self.batch_size is not None:
            return self.batch_size
        return default_batch_size((c, h, w), self.victim.device)

    def _run(self, problems: Problems, look: Look) -> AttackResult:
        result = run(
            self._plain,
            self.victim,
            problems,
            seed=self.seed,
            batch_size=self._size,
            memory=look,
        )
        result.ledger.lost += look.lost
        return result


class Look:
    """What a victim says to clean images: the first answer of each, which is not asked for again.

    Attributes:
        labels: ``(n,)`` what it says; -1 where it has failed.
        scores: ``(n, classes)``.
        lost: ``(n,)`` images that were sent without an answer.
    """

    def __init__(self, victim: Victim, images: Tensor, batch_size: int) -> None:
        oracle = Oracle(victim, len(images), 1, batch_size)
        with torch.no_grad():
            answers = oracle.ask(torch.arange(len(images)), images, "clean")
        if answers.common_error is not None:
            raise VictimUnavailable(f"no clean image could be classified: {answers.common_error}")
        self.labels, self.scores = answers.labels.cpu(), answers.values.cpu()
        self.lost = oracle.ledger.lost

    def recall(self, rows: Tensor, draws: Tensor) -> tuple[Tensor, Tensor] | None:
        """The answers to clean images; see `brusle.oracle.Memory`."""
        known = ((draws == 0) & (self.labels[rows] >= 0)).nonzero()[:, 0]
        return (known, self.scores[rows[known]]) if len(known) else None

    def note(self, rows: Tensor, draws: Tensor, scores: Tensor) -> None:
        """Later answers are not asked for twice, and not kept."""


def require_attack(attack: object) -> None:
    """Raise unless ``attack`` is one of brusle's."""
    if not isinstance(attack, BaseAttack):
        raise InputError(
            f"{attack!r} is no attack of brusle: give one, as in brusle.attacks.BruSLe(pixels=5)"
        )


def in_pixels(name: str, value: object) -> int:
    """A budget that other libraries call ``name``: here it counts pixels."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not number.is_integer() or number < 1:
        raise InputError(
            f"{name} is {value}: here it counts pixels (not channel values, and no size of a "
            f"change), so give a whole number of at least 1"
        )
    return int(number)


def with_pixels(attack: A, pixels: int) -> A:
    """``attack`` with another budget; of several searches, each has it."""
    if isinstance(attack, Ensemble):
        return replace(attack, attacks=[with_pixels(one, pixels) for one in attack.attacks])
    if isinstance(attack, Wrapper):
        return replace(attack, attack=with_pixels(attack.attack, pixels))
    return replace(attack, pixels=pixels)  # type: ignore[call-arg]  # every single search has it


def reached_at_once(result: AttackResult, targeted: bool) -> Tensor:
    """``(n,)`` bool: the clean image is what the caller wanted, without any attack."""
    said, problems = result.clean_labels, result.problems
    if targeted:
        assert problems.targets is not None
        return said == problems.targets
    return (said != problems.labels) & (said >= 0)
