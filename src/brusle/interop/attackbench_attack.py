"""Attacks of brusle as AttackBench calls them (Cinà et al., AAAI 2025)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from brusle.adapting import adapted
from brusle.attacks.base import BaseAttack
from brusle.interop.calling import Case
from brusle.interop.layout import Layout
from brusle.results import AttackResult


class AttackBenchAttack:
    """An attack of brusle that is called as AttackBench does; see `brusle.interop.attackbench`.

    Attributes:
        attack: the attack.
        result: of the last call; None before the first.
    """

    def __init__(self, attack: BaseAttack, seed: int, batch_size: int | None) -> None:
        self.attack, self.seed, self.batch_size = attack, seed, batch_size
        self.result: AttackResult | None = None

    def __call__(
        self,
        model: Any,
        inputs: Tensor,
        labels: Any,
        targets: Any = None,
        targeted: bool = False,
    ) -> Tensor:
        """Attack ``inputs`` and return the best images found.

        Args:
            model: an ``nn.Module`` that takes images in [0, 1] and returns logits.
            inputs: ``(n, c, h, w)``.
            labels: true labels, for an untargeted attack.
            targets: labels to reach, or one for all.
            targeted: whether these are meant.
        """
        theirs = inputs.detach()
        case = Case(
            self.attack,
            adapted(model),
            theirs,
            seed=self.seed,
            batch_size=self.batch_size,
        )
        self.result = case.reaching(targets) if targeted else case.leaving(labels)
        return Layout().put_back(theirs, self.result.problems.images, self.result.images)
