"""Preflight: can an evaluation of this victim on this data be trusted, and what will it cost?

Each finding is explained in docs/check.md under its own heading. The queries are counted like all
others and reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from brusle.data import Dataset, Source
from brusle.errors import BrusleError, InputError, VictimError, VictimUnavailable
from brusle.evaluation.metrics import Rate
from brusle.evaluation.workload import Data, as_source, check_fit, chosen_rows
from brusle.oracle import Oracle, Victim, traits
from brusle.victims import as_victim, default_batch_size

Verdict = Literal["ok", "warning", "failure"]
PAGE = "docs/check.md"
REPEATS = 3
_MOST_AT_ONCE = 4096  # images in one call, to see how quick it is
_SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    "values from 0 to 255 (multiply by 255 inside the model)": lambda x: 255 * x,
    "values from -1 to 1 (brusle.victims.normalised(model, mean=[0.5] * 3, std=[0.5] * 3))": (
        lambda x: 2 * x - 1
    ),
    "ImageNet's normalisation (brusle.victims.normalised(model, mean, std))": lambda x: (
        (x - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    ),
}


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


@dataclass(frozen=True)
class Preflight:
    """All findings, and the figures behind them.

    Attributes:
        victim: its name.
        data: name of the data.
        findings: one for each topic.
        accuracy: on the images that were looked at.
        images_per_second: at the usual batch size; NaN if not measured.
        queries: images that the victim has answered for this check.
    """

    victim: str
    data: str
    findings: tuple[Finding, ...]
    accuracy: Rate
    images_per_second: float
    queries: int

    @property
    def failed(self) -> bool:
        """Whether results of an evaluation could not be trusted."""
        return any(finding.verdict == "failure" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        findings = [asdict(f) | {"anchor": f.anchor} for f in self.findings]
        return asdict(self) | {"findings": findings, "accuracy": self.accuracy.as_dict()}


def check(
    victim: Any,
    data: Data = "sample",
    *,
    limit: int = 100,
    images: int = 100,
    queries: int = 500,
    batch_size: int | None = None,
    device: str = "auto",
) -> Preflight:
    """Look at ``victim`` before an evaluation.

    Args:
        victim: a name, a module or a victim.
        data: a name or a data set.
        limit: how many images to look at, evenly over the classes.
        images: of the evaluation whose cost is estimated.
        queries: likewise, the query limit.
        batch_size: most images per call; None chooses by image size.
        device: where the victim runs.
    """
    model = as_victim(victim, device)
    place = as_source(data, model)
    some = place.take(chosen_rows(place, limit))
    return _Check(model, place, some, batch_size, images * queries).result()


class _Check:
    def __init__(
        self,
        victim: Victim,
        place: Source,
        data: Dataset,
        batch_size: int | None,
        planned: int,
    ) -> None:
        self.victim, self.place, self.data, self.planned = victim, place, data, planned
        c, h, w = data.images.shape[1:]
        size = batch_size or default_batch_size((c, h, w), victim.device)
        self.size = size
        self.oracles: list[Oracle] = []
        self.traits = traits(victim)
        self.accuracy, self.speed = Rate(0, 0), float("nan")

    def result(self) -> Preflight:
        return Preflight(
            self.victim.name,
            self.data.name,
            tuple(self._findings()),
            self.accuracy,
            self.speed,
            sum(int(oracle.ledger.total.sum()) for oracle in self.oracles),
        )

    def _findings(self) -> Iterator[Finding]:
        """In the order in which they build on each other; a victim that fails early ends it."""
        yield self._mode()
        yield self._gives()
        try:
            check_fit(self.place, self.data.images.shape[1:], self.victim)
            yield Finding("shape and classes", "ok", self._fit_text())
        except InputError as error:
            yield Finding("shape and classes", "failure", str(error))
            return
        try:
            scores, errors = self._ask(self.data.images)
        except VictimUnavailable:
            raise  # nothing was learned about it
        except VictimError as error:
            yield Finding("output kind", "failure", str(error))
            return
        yield self._finite(errors)
        if len(errors) == len(self.data):
            return
        try:
            self._problems_fit(scores.shape[1])
        except InputError as error:
            yield Finding("labels", "failure", str(error))
            return
        yield self._output_kind(scores)
        yield self._accuracy(scores, errors)
        yield self._range()
        yield self._determinism(scores)
        yield self._batch(scores)
        yield self._throughput()
        yield self._cost()

    def _ask(self, images: Tensor, size: int | None = None) -> tuple[Tensor, dict[int, str]]:
        oracle = Oracle(self.victim, len(images), limit=0, batch_size=size or self.size)
        self.oracles.append(oracle)
        oracle.classes = self.oracles[0].classes  # which must not change
        answers = oracle.ask(torch.arange(len(images)), images, "clean")
        return answers.scores.cpu().double(), answers.errors

    def _problems_fit(self, classes: int) -> None:
        top = int(self.data.labels.max())
        if top >= classes:
            raise InputError(
                f"{self.data.name} has label {top}, but the victim answers with {classes} scores: "
                f"take data and victim that belong together"
            )

    def _mode(self) -> Finding:
        module = getattr(self._innermost(), "module", None)
        if not isinstance(module, nn.Module):
            return Finding("evaluation mode", "ok", "not a torch module: nothing to look at")
        training = [name or "the model" for name, part in module.named_modules() if part.training]
        if training:
            return Finding(
                "evaluation mode",
                "failure",
                f"{training[0]} is in training mode, so answers depend on the batch: call "
                f"model.eval() after whatever switched it",
            )
        return Finding("evaluation mode", "ok", "all layers are in evaluation mode")

    def _innermost(self) -> Victim:
        victim = self.victim
        while (inside := getattr(victim, "victim", None)) is not None:
            victim = inside
        return victim

    def _gives(self) -> Finding:
        text = {
            "scores": "gives the scores of all classes",
            "partial": "gives the scores of the best classes only: a target outside them is "
            "invisible until it enters",
            "label": "gives the label only: attacks that follow scores search blindly; take a "
            "decision-based one",
        }[self.traits.gives]
        return Finding("scores", "ok" if self.traits.gives == "scores" else "warning", text)

    def _fit_text(self) -> str:
        shape = " x ".join(map(str, self.data.images.shape[1:]))
        names = "class names agree" if self.traits.classes and self.data.classes else "no names"
        return f"images of {shape}, {len(self.data)} looked at, {names}"

    def _finite(self, errors: dict[int, str]) -> Finding:
        c, h, w = self.data.images.shape[1:]
        noise = torch.rand(c, h, w, generator=torch.Generator().manual_seed(0)).round()
        extremes = torch.stack([torch.zeros(c, h, w), torch.ones(c, h, w), noise])
        _, extreme = self._ask(extremes)
        found = errors or extreme
        if not found:
            text = f"finite scores for {len(self.data)} images, and for black, white and noise"
            return Finding("finite scores", "ok", text)
        where = "images of the data" if errors else "black, white and noise images"
        text = f"{len(found)} of the {where} got no usable scores: {next(iter(found.values()))}"
        return Finding("finite scores", "failure", text)

    def _output_kind(self, scores: Tensor) -> Finding:
        low, high = float(scores.nan_to_num().min()), float(scores.nan_to_num().max())
        text = f"declared as {self.victim.output}; scores from {low:.3g} to {high:.3g}"
        saturated = self.victim.output == "probabilities" and (scores.amax(1) >= 1).float().mean()
        if saturated > 0.5 and self.traits.gives == "scores":
            return Finding(
                "output kind",
                "warning",
                f"{text}; most top scores are exactly 1, so small progress is invisible: give "
                f"logits if you can",
            )
        return Finding("output kind", "ok", text)

    def _accuracy(self, scores: Tensor, errors: dict[int, str]) -> Finding:
        self.accuracy = Rate(int(self._right(scores).sum()), len(self.data) - len(errors))
        low, high = self.accuracy.interval
        share = self.accuracy.value
        text = f"{100 * share:.1f} % [{100 * low:.0f}, {100 * high:.0f}]"
        chance = 1 / scores.shape[1]
        if low <= chance:
            advice = "no better than guessing: check preprocessing, labels and weights"
            return Finding("accuracy", "failure", f"{text}, {advice}")
        if share < 0.5:
            return Finding("accuracy", "warning", f"{text}: is this the data it was trained for?")
        return Finding("accuracy", "ok", f"{text} of {self.accuracy.count} images")

    def _right(self, scores: Tensor) -> Tensor:
        """Which images are classified correctly; not those that got no scores."""
        return (scores.argmax(1) == self.data.labels) & ~scores.isnan().any(1)

    def _range(self) -> Finding:
        """Images are in [0, 1]; if another scale fits the model far better, it expects that."""
        if self.accuracy.value >= 0.85 or self.data.images.shape[1] != 3:
            return Finding("input range", "ok", "takes images in [0, 1]")
        best, best_scale = 0.0, ""
        for scale, change in _SCALES.items():
            try:
                scores, _ = self._ask(change(self.data.images))
            except BrusleError:
                continue
            share = float(self._right(scores).double().mean())
            best, best_scale = max((best, best_scale), (share, scale))
        # the upper end of the interval: chance alone does not get there
        if best > self.accuracy.interval[1]:
            text = f"{100 * best:.0f} % accuracy with {best_scale}: the model wants that"
            return Finding("input range", "failure", text)
        return Finding("input range", "ok", "no other scale of the input fits it better")

    def _determinism(self, scores: Tensor) -> Finding:
        spread, flips = 0.0, 0
        for _ in range(REPEATS - 1):
            again, _ = self._ask(self.data.images)
            spread = max(spread, float((again - scores).nan_to_num().abs().max()))
            flips = max(flips, int((again.argmax(1) != scores.argmax(1)).sum()))
        said = f"{REPEATS} calls differ by {spread:.2g} at most, {flips} labels change"
        if self.traits.randomised:
            text = f"declared as randomised ({said}): successes are also counted as stable or not"
            return Finding("determinism", "warning", text)
        if flips or spread > 1e-3:
            text = f"{said}, but it is not declared as randomised: wrap it with randomised=True"
            return Finding("determinism", "failure", text)
        return Finding("determinism", "ok", said)

    def _batch(self, scores: Tensor) -> Finding:
        """The same images in calls of one."""
        if self.traits.randomised:
            return Finding("batch size", "ok", "not looked at: the victim is randomised")
        some = min(8, len(self.data))
        alone, errors = self._ask(self.data.images[:some], size=1)
        if errors:
            text = f"an image in a call of its own gets no scores: {next(iter(errors.values()))}"
            return Finding("batch size", "failure", text)
        gap = float((alone - scores[:some]).nan_to_num().abs().max())
        text = f"alone and in a batch, scores differ by {gap:.2g} at most"
        if bool((alone.argmax(1) != scores[:some].argmax(1)).any()) or gap > 1e-2:
            advice = "answers depend on what else is in the batch (BatchNorm in training mode?)"
            return Finding("batch size", "failure", f"{text}: {advice}")
        if gap > 1e-4:
            return Finding("batch size", "warning", f"{text}: results may vary with batch_size")
        return Finding("batch size", "ok", text)

    def _throughput(self) -> Finding:
        size = min(self.size, _MOST_AT_ONCE)
        images = self.data.images.repeat(-(-size // len(self.data)), 1, 1, 1)[:size]
        best = float("inf")
        for _ in range(REPEATS):
            began = time.monotonic()
            self._ask(images)
            best = min(best, time.monotonic() - began)
        self.speed = size / max(best, 1e-9)
        return Finding("throughput", "ok", f"{self.speed:.0f} images/s in calls of {size}")

    def _cost(self) -> Finding:
        minutes = self.planned / self.speed / 60
        text = (
            f"at most {self.planned} queries for each goal and pixel budget, about "
            f"{minutes:.1f} minutes"
        )
        return Finding("cost", "ok", text)
