"""What is wrong with a victim, judged by its answers to some images of the data.

`brusle check` looks at everything, `brusle evaluate` at what its first answers give away. Each
finding is explained in docs/check.md under its own heading.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brusle.errors import BrusleError, VictimUnavailable
from brusle.evaluation.statistics import Rate
from brusle.oracle import Oracle
from brusle.scores import ABSENT, top_labels
from brusle.victim import Victim, traits
from brusle.victims.preprocessing import as_if, others, remedy, suspects
from brusle.victims.wrappers import contradiction

Verdict = Literal["ok", "warning", "failure"]
PAGE = "docs/check.md"


@dataclass(frozen=True)
class Finding:
    """One verdict.

    Attributes:
        topic: what was looked at; also the heading in `PAGE`.
        verdict: ``"ok"``, ``"warning"`` (know this), or ``"failure"`` (results would be wrong).
        text: what was found, and for a failure what to do.
    """

    topic: str
    verdict: Verdict
    text: str

    @property
    def anchor(self) -> str:
        """Where it is explained."""
        return f"{PAGE}#{self.topic.replace(' ', '-')}"


class Sample:
    """Some images of the data, put to a victim; every query is counted.

    Args:
        victim: the victim.
        images: ``(n, c, h, w)``.
        labels: ``(n,)`` true labels.
        batch_size: most images in one call of the victim.
        streams: ``(n,)`` keys from `rng.streams` that a victim's noise depends on.

    Attributes:
        scores: ``(n, classes)`` float64; NaN in the rows that have an error.
        errors: position of an image to the reason why it has no scores.
        speed: images per second, the best so far.
    """

    def __init__(
        self,
        victim: Victim,
        images: Tensor,
        labels: Tensor,
        batch_size: int,
        streams: Tensor | None = None,
    ) -> None:
        self.victim, self.images, self.labels = victim, images, labels
        self._oracle = Oracle(victim, len(images), limit=0, batch_size=batch_size, streams=streams)
        self._oracles = [self._oracle]
        self.speed = 0.0
        self.scores, self.errors = torch.zeros(len(images), 0), dict[int, str]()

    def look(self) -> None:
        """Ask for all images; `scores` and `errors` are the answers."""
        self.scores, self.errors = self.ask(self.images)

    def ask(self, images: Tensor) -> tuple[Tensor, dict[int, str]]:
        """Scores of other versions of the images, and errors."""
        began = time.monotonic()
        answers = self._oracle.ask(torch.arange(len(images)), images, "clean")
        self.speed = max(self.speed, len(images) / max(time.monotonic() - began, 1e-9))
        return answers.values.cpu().double(), answers.errors

    def ask_apart(self, images: Tensor, batch_size: int) -> tuple[Tensor, dict[int, str]]:
        """Scores of any images, in calls of another size."""
        oracle = Oracle(self.victim, len(images), limit=0, batch_size=batch_size)
        self._oracles.append(oracle)
        answers = oracle.ask(torch.arange(len(images)), images, "clean")
        return answers.values.cpu().double(), answers.errors

    @property
    def answered(self) -> int:
        """Images that the victim has answered."""
        return sum(int(oracle.ledger.total.sum()) for oracle in self._oracles)

    @property
    def lost(self) -> int:
        """Images that were sent without a usable answer."""
        return sum(int(oracle.ledger.lost.sum()) for oracle in self._oracles)

    @property
    def spoils(self) -> bool:
        """Whether the victim was seen to change the images that it is given."""
        return any(oracle.spoils for oracle in self._oracles)

    @property
    def accuracy(self) -> Rate:
        """Over the images that have scores."""
        return self.right(self.scores, self.errors)

    def right(self, scores: Tensor, errors: dict[int, str]) -> Rate:
        """How many of some answers are right."""
        hits = (top_labels(scores) == self.labels) & ~scores.isnan().any(1)
        return Rate(int(hits.sum()), len(scores) - len(errors))

    @property
    def chance(self) -> float:
        """Accuracy of somebody who guesses."""
        return 1 / self.scores.shape[1]

    @property
    def one_answer(self) -> float:
        """Accuracy of somebody who always says the same, but no more than a half."""
        most = int(self.labels.bincount().max()) / len(self.labels)
        return max(self.chance, min(most, 0.5))


def finite(sample: Sample, kind: str = "") -> Finding:
    """Does every image get usable scores?

    Args:
        sample: the answers.
        kind: only errors whose reason has this in it count.
    """
    errors = {at: reason for at, reason in sample.errors.items() if kind in reason}
    count = len(sample.images)
    if not errors:
        return Finding("finite scores", "ok", f"finite scores for {count} images")
    reason = next(iter(errors.values()))
    text = f"{len(errors)} of {count} images of the data got no usable scores: {reason}"
    return Finding("finite scores", "failure", text)


def output_kind(sample: Sample) -> Finding:
    """Are scores what the victim declares?"""
    victim, gives = sample.victim, traits(sample.victim).gives
    scores = sample.scores[~sample.scores.isnan().any(1)]
    # a defence may round probabilities or leave some out: those need not sum to one
    if gives == "scores" and not hasattr(victim, "victim"):
        wrong = contradiction(scores, victim.output, victim.name)
        if wrong:
            return Finding("output kind", "failure", wrong)
    named = scores[scores > ABSENT]
    low, high = (float(named.min()), float(named.max())) if len(named) else (0.0, 0.0)
    text = f"declared as {victim.output}; scores from {low:.3g} to {high:.3g}"
    if gives == "partial":
        lengths = (scores > ABSENT).sum(1)
        text += f" in lists of {int(lengths.min())} to {int(lengths.max())} labels"
    saturated = victim.output == "probabilities" and (scores.amax(1) >= 1).float().mean() > 0.5
    if saturated and gives == "scores":
        return Finding(
            "output kind",
            "warning",
            f"{text}; most top scores are exactly 1, so small progress is invisible: give "
            f"logits if you can",
        )
    return Finding("output kind", "ok", text)


def accuracy(sample: Sample, explained: bool = False) -> Finding:
    """Is the victim better than somebody who guesses?

    Args:
        sample: the answers.
        explained: another finding says why it is not.
    """
    rate, chance, classes = sample.accuracy, sample.chance, sample.scores.shape[1]
    low, high = rate.interval
    text = f"{100 * rate.value:.1f} % [{100 * low:.0f}, {100 * high:.0f}] of {rate.count} images"
    if low > chance:
        if rate.value < 0.5:
            return Finding("accuracy", "warning", f"{text}: is this the data it was trained for?")
        return Finding("accuracy", "ok", text)
    # a few images cannot tell a net that guesses from one that is good
    if high >= (1 + chance) / 2:
        return Finding("accuracy", "warning", f"{text}: too few images to tell it from guessing")
    text += f", no better than guessing among {classes} classes"
    order = "" if explained else label_order(sample)
    if order:
        text += f": {order}"
    elif not explained:
        text += f". Likely causes: {suspects(sample.victim)}"
    return Finding("accuracy", "failure", text)


def input_range(sample: Sample, below: float) -> Finding:
    """If another convention of the input fits the victim far better, it expects that.

    Args:
        sample: the answers.
        below: with an accuracy of at least this, nothing is asked.
    """
    victim, channels = sample.victim, sample.images.shape[1]
    if sample.accuracy.value >= below:
        return Finding("input range", "ok", "takes images in [0, 1]")
    best, rate = None, sample.accuracy
    for convention in others(victim, channels):
        try:
            found = sample.right(*sample.ask(as_if(victim, sample.images, convention)))
        except VictimUnavailable:
            raise
        except BrusleError:  # it has every right to refuse such images
            continue
        if found.count and found.value > rate.value:
            best, rate = convention, found
    if best is None or rate.interval[0] <= max(sample.accuracy.interval[1], sample.one_answer):
        return Finding("input range", "ok", "no other range of the input fits it far better")
    return Finding(
        "input range",
        "failure",
        f"{100 * rate.value:.0f} % accuracy, and not {100 * sample.accuracy.value:.0f} %, with "
        f"{best.words}: {remedy(victim, best)}",
    )


def probes(victim: Victim, channels: int) -> int:
    """How often `input_range` asks for every image, at most."""
    return len(others(victim, channels))


def label_order(sample: Sample) -> str:
    """Which class of the victim is which label, if its labels are plainly in another order.

    The order is made of one half of the images and tried on the other, and the other way round:
    on the images that it was made of, any order would look good.
    """
    known = ~sample.scores.isnan().any(1)
    labels, said = sample.labels[known].tolist(), top_labels(sample.scores[known]).tolist()
    half = _halves(labels)
    hits = 0
    for mine in (0, 1):
        order = _matched(
            [(a, b) for a, b, at in zip(labels, said, half, strict=True) if at == mine]
        )
        rest = [(a, b) for a, b, at in zip(labels, said, half, strict=True) if at != mine]
        hits += sum(order.get(label) == answer for label, answer in rest)
    rate = Rate(hits, len(labels))
    if rate.interval[0] <= 0.5:
        return ""
    moved = {
        a: b for a, b in sorted(_matched(list(zip(labels, said, strict=True))).items()) if a != b
    }
    swaps = ", ".join(f"{b} for {a}" for a, b in list(moved.items())[:4])
    return (
        f"its labels are in another order than the data's (it says {swaps}"
        f"{', ...' if len(moved) > 4 else ''}; {100 * rate.value:.0f} % accuracy if that is put "
        f"right): reorder the classes of one of them"
    )


def _halves(labels: list[int]) -> list[int]:
    """0 or 1 for every image, in turn within its class."""
    seen: Counter[int] = Counter()
    turns = []
    for label in labels:
        turns.append(seen[label] % 2)
        seen[label] += 1
    return turns


def _matched(pairs: list[tuple[int, int]]) -> dict[int, int]:
    """For each label the class that the victim says to it, the most frequent pairs first."""
    order: dict[int, int] = {}
    for (label, answer), _ in sorted(Counter(pairs).items(), key=lambda item: (-item[1], item[0])):
        if label not in order and answer not in order.values():
            order[label] = answer
    return order
