"""What an attack found, one entry per image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import overload

import torch
from torch import Tensor

from brusle.ledger import Ledger
from brusle.notebooks import html_of
from brusle.outcomes import ANSWERED, ATTACKED, HIT, ROBUST, Status, share
from brusle.problems import Problems, changed_pixels
from brusle.tracing import Trace


@dataclass(frozen=True)
class AttackInfo:
    """Which attack it was, whether it has just run or was stored long ago.

    Attributes:
        label: its name, with the options that differ from their defaults.
        pixels: its pixel budget.
        queries: its query limit.
    """

    label: str
    pixels: int
    queries: int

    def __str__(self) -> str:
        return f"{self.label}, {self.pixels} pixels, {self.queries} queries"


@dataclass
class AttackResult:
    """The outcome of one attack on many images.

    A status is

    * ``"success"``: the goal was reached, and the image passed the independent check;
    * ``"failed"``: the query limit was spent without reaching the goal;
    * ``"skipped"``: the victim did not classify the clean image correctly, so it was not attacked;
    * ``"unverified"``: the attack reported a success that the check refused (see ``errors``);
    * ``"error"``: the victim raised or answered nonsense (see ``errors``). Never "robust".

    Attributes:
        problems: the images, labels, targets and ids.
        attack: which attack it was.
        seed: the seed.
        status: one word per image.
        images: ``(n, c, h, w)`` adversarial images; the best found where there was no success,
            the clean ones where there was no attack.
        queries: ``(n,)`` queries spent by the attack: up to and with the first success, the
            limit where there was none, 0 where there was no attack.
        labels: ``(n,)`` what the victim says to ``images``; -1 where it is not known.
        clean_labels: ``(n,)`` what it says to the clean images; -1 where it is not known.
        losses: ``(n,)`` loss of ``images``.
        scores: ``(n, classes)`` what the victim answered to ``images``.
        times: ``(n,)`` seconds that each attack took, beside others in its batch.
        ledger: all queries by purpose.
        stable: ``(n,)`` bool: the success can be repeated. The same as ``success`` unless the
            victim is randomised; then more than half of 20 fresh answers must reach the goal.
        randomised: whether the victim says that its answers vary.
        notes: what a reader of the numbers should know about this attack on this victim.
        names: what the images are called; numbers if nobody says.
        errors: image number to reason, for the statuses "error" and "unverified".
        found_by: which attack of an ensemble was successful; empty otherwise.
        seconds: wall-clock time.
        traces: image number to what the search found on its way, if that was asked for.
    """

    problems: Problems
    attack: AttackInfo
    seed: int
    status: list[Status]
    images: Tensor
    queries: Tensor
    labels: Tensor
    clean_labels: Tensor
    losses: Tensor
    scores: Tensor
    times: Tensor
    ledger: Ledger
    stable: Tensor
    randomised: bool
    notes: Sequence[str] = ()
    names: Sequence[str] = ()
    errors: dict[int, str] = field(default_factory=dict)
    found_by: list[str] = field(default_factory=list)
    seconds: float = 0.0
    traces: dict[int, Trace] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.found_by = self.found_by or [""] * len(self)
        self.names = self.names or [f"{i:05d}" for i in range(len(self))]

    def __len__(self) -> int:
        return len(self.status)

    @property
    def success(self) -> Tensor:
        """``(n,)`` bool: reached the goal and passed the check."""
        return self._is(HIT)

    @property
    def pixels(self) -> Tensor:
        """``(n,)`` how many pixels of ``images`` differ from the original."""
        return changed_pixels(self.images, self.problems.images)

    @property
    def attacked(self) -> Tensor:
        """``(n,)`` bool: the images that the attack success rate is taken over."""
        return self._is(*ATTACKED)

    @overload
    def asr(self, at: None = None) -> float: ...
    @overload
    def asr(self, at: Iterable[int]) -> dict[int, float]: ...
    def asr(self, at: Iterable[int] | None = None) -> float | dict[int, float]:
        """Attack success rate over the images that were classified correctly (the paper's).

        Args:
            at: numbers of queries; the result is then the rate within so many, for each.
        """
        count = int(self.attacked.sum())
        if at is None:
            return share(int(self.success.sum()), count)
        hits = self.queries[self.success]
        return {q: share(int((hits <= q).sum()), count) for q in at}

    @property
    def stable_asr(self) -> float:
        """Attack success rate that counts stable successes only."""
        return share(int(self.stable.sum()), int(self.attacked.sum()))

    @property
    def robust_accuracy(self) -> float:
        """Share of all images without error that are classified correctly to the end."""
        return share(int(self._is(ROBUST).sum()), int(self._is(*ANSWERED).sum()))

    def _is(self, *statuses: Status) -> Tensor:
        return torch.tensor([status in statuses for status in self.status], dtype=torch.bool)

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __repr__(self) -> str:
        counts = {s: self.status.count(s) for s in dict.fromkeys(self.status)}
        text = ", ".join(f"{count} {status}" for status, count in counts.items())
        stable = f" (stable {self.stable_asr:.3f})" if self.randomised else ""
        rate = f"asr {self.asr():.3f}{stable}"
        return f"AttackResult({text}; {rate}; {self.attack}, seed {self.seed})"
