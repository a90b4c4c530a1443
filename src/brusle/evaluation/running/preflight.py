"""Preflight: can an evaluation of this victim on this data be trusted, and what will it cost?

What it takes is said before it begins, kept to, and counted like all other queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from brusle.batching import default_batch_size
from brusle.data import Data, Dataset, Source, as_source
from brusle.data.fit import check_fit
from brusle.errors import InputError, VictimError, VictimUnavailable
from brusle.evaluation.running.diagnosis import (
    Finding,
    Sample,
    accuracy,
    finite,
    input_range,
    output_kind,
    probes,
)
from brusle.evaluation.statistics.rates import Rate, or_none
from brusle.scores import top_labels, widened
from brusle.victim import Victim, meaning_of, traits
from brusle.victims import as_victim
from brusle.victims.borrowing import evaluating
from brusle.victims.preprocessing import undefended
from brusle.victims.wrappers import OutputKindError

REPEATS = 3
_EXTREMES = 3  # black, white and noise
_ALONE = 8  # images that are asked in calls of one
_SOUND = 0.85  # a victim that is as accurate as this gets the range of input that it wants


@dataclass(frozen=True)
class Effort:
    """What a check will take.

    Attributes:
        images: images of the data that it looks at.
        queries: for a sound victim.
        most: if accuracy is low, so that other ranges of the input are tried.
    """

    images: int
    queries: int
    most: int


@dataclass(frozen=True)
class Preflight:
    """All findings, and the figures behind them.

    Attributes:
        victim: its name.
        data: name of the data.
        findings: one for each topic.
        accuracy: on the images that were looked at.
        images_per_second: in calls of the usual size; NaN if not measured.
        effort: what the check was to take.
        queries: images that the victim has answered for it.
        lost: images that were sent without a usable answer.
    """

    victim: str
    data: str
    findings: tuple[Finding, ...]
    accuracy: Rate
    images_per_second: float
    effort: Effort
    queries: int
    lost: int

    @property
    def failed(self) -> bool:
        """Whether results of an evaluation could not be trusted."""
        return any(finding.verdict == "failure" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        findings = [asdict(f) | {"anchor": f.anchor} for f in self.findings]
        return asdict(self) | {
            "findings": findings,
            "accuracy": self.accuracy.as_dict(),
            "images_per_second": or_none(self.images_per_second),
        }


def check(
    victim: Any,
    data: Data = "sample",
    *,
    limit: int = 100,
    queries: int | None = None,
    planned_images: int = 100,
    planned_queries: int = 500,
    batch_size: int | None = None,
    device: str = "auto",
    on_effort: Callable[[Effort], None] | None = None,
) -> Preflight:
    """Look at ``victim`` before an evaluation.

    Args:
        victim: a name, a module or a victim.
        data: a name or a data set.
        limit: how many images to look at, evenly over the classes.
        queries: most queries that this check may take; with few, it looks at fewer images. None
            is what ``limit`` images take.
        planned_images: of the evaluation whose cost is estimated.
        planned_queries: likewise, the query limit.
        batch_size: most images per call; None chooses by image size.
        device: where the victim runs.
        on_effort: called before the first query with what will be taken.
    """
    model = as_victim(victim, device)
    source = as_source(data, model)
    rows = source.chosen(limit)
    channels = source.take(rows[:1]).images.shape[1]
    effort = _effort(len(rows), probes(model, channels), queries)
    if on_effort is not None:
        on_effort(effort)
    images = source.take(rows[: effort.images])
    planned = planned_images * planned_queries
    return _Check(model, source, images, batch_size, effort, planned).result()


def _effort(images: int, ranges: int, most: int | None) -> Effort:
    """For as many of the images as the queries suffice for."""

    def sound(n: int) -> int:
        return REPEATS * n + _EXTREMES + min(_ALONE, n)

    least = sound(1) + ranges
    if most is not None and most < least:
        raise InputError(f"queries is {most}: a check takes at least {least}")
    while most is not None and sound(images) + ranges * images > most:
        images -= 1
    return Effort(images, sound(images), sound(images) + ranges * images)


class _Check:
    def __init__(
        self,
        victim: Victim,
        source: Source,
        data: Dataset,
        batch_size: int | None,
        effort: Effort,
        planned: int,
    ) -> None:
        self.victim, self.source, self.data = victim, source, data
        self.effort, self.planned = effort, planned
        c, h, w = data.images.shape[1:]
        self.size = batch_size or default_batch_size((c, h, w), victim.device)
        self.sample = Sample(victim, data.images, data.labels, self.size)
        self.traits = traits(victim)

    def result(self) -> Preflight:
        findings = tuple(self._findings())
        measured = any(finding.topic == "throughput" for finding in findings)
        return Preflight(
            self.victim.name,
            self.data.name,
            findings,
            self.sample.accuracy if self.sample.scores.shape[1] else Rate(0, 0),
            self.sample.speed if measured else float("nan"),
            self.effort,
            self.sample.answered,
            self.sample.lost,
        )

    def _findings(self) -> Iterator[Finding]:
        """All findings; a victim that answers with something else than scores ends it."""
        try:
            yield from self._steps()
        except VictimUnavailable:
            raise  # nothing was learned about it
        except OutputKindError as error:
            yield Finding("output kind", "failure", str(error))
        except VictimError as error:
            yield Finding("answers", "failure", str(error))

    def _steps(self) -> Iterator[Finding]:
        """In the order in which they build on each other; a victim that fails early ends it."""
        yield self._mode()
        yield self._gives()
        try:
            check_fit(self.source, self.data.images.shape[1:], self.victim)
            yield Finding("shape and classes", "ok", self._fit_text())
        except InputError as error:
            yield Finding("shape and classes", "failure", str(error))
            return
        sample = self.sample
        sample.look()
        yield self._finite()
        if len(sample.errors) == len(self.data):
            return
        top, classes = int(self.data.labels.max()), sample.scores.shape[1]
        if top >= classes:
            yield Finding(
                "labels",
                "failure",
                f"{self.data.name} has label {top}, but the victim answers with {classes} scores: "
                f"take data and victim that belong together",
            )
            return
        yield output_kind(sample)
        fitting = input_range(sample, _SOUND)
        yield accuracy(sample, explained=fitting.verdict == "failure")
        yield fitting
        yield self._in_place()
        yield self._determinism()
        yield self._batch()
        yield self._throughput()
        yield self._cost()

    def _mode(self) -> Finding:
        module = getattr(undefended(self.victim), "module", None)
        if not isinstance(module, nn.Module):
            return Finding("evaluation mode", "ok", "not a torch module: nothing to look at")
        before = module.training
        with evaluating(module):
            names = [name or "the model" for name, part in module.named_modules() if part.training]
        if names:
            return Finding(
                "evaluation mode",
                "failure",
                f"{names[0]} stays in training mode when model.eval() is called, so answers "
                f"depend on the batch or on chance: see its method train()",
            )
        text = "all layers are in evaluation mode"
        if before:
            text += " while they are asked; the model itself stays in training mode"
        return Finding("evaluation mode", "ok", text)

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

    def _finite(self) -> Finding:
        found = finite(self.sample)
        if found.verdict != "ok":
            return found
        c, h, w = self.data.images.shape[1:]
        noise = torch.rand(c, h, w, generator=torch.Generator().manual_seed(0)).round()
        extremes = torch.stack([torch.zeros(c, h, w), torch.ones(c, h, w), noise])
        _, errors = self.sample.ask_apart(extremes, self.size)
        if not errors:
            return Finding("finite scores", "ok", f"{found.text}, and for black, white and noise")
        reason = next(iter(errors.values()))
        text = f"{len(errors)} of black, white and noise images got no usable scores: {reason}"
        return Finding("finite scores", "failure", text)

    def _in_place(self) -> Finding:
        if not self.sample.spoils:
            return Finding("input in place", "ok", "images come back as they were given")
        text = (
            "the victim changes the images that it is given: it gets copies here, so results are "
            "right; other code that calls it may be misled"
        )
        return Finding("input in place", "warning", text)

    def _determinism(self) -> Finding:
        scores, spread, flips = self.sample.scores, 0.0, 0
        for _ in range(REPEATS - 1):
            again, _ = self.sample.ask(self.data.images)
            spread = max(spread, self._gap(again, scores))
            flips = max(flips, int((top_labels(again) != top_labels(scores)).sum()))
        said = f"{REPEATS} calls differ by {spread:.2g} at most, {flips} labels change"
        if self.traits.randomised and spread == 0:
            text = (
                f"declared as randomised, but {said}: layers are in evaluation mode when they are "
                f"asked, so noise and dropout must be drawn in forward() itself"
            )
            return Finding("determinism", "warning", text)
        if self.traits.randomised:
            text = f"declared as randomised ({said}): successes are also counted as stable or not"
            return Finding("determinism", "warning", text)
        if flips or spread > 1e-3:
            text = f"{said}, but it is not declared as randomised: wrap it with randomised=True"
            return Finding("determinism", "failure", text)
        return Finding("determinism", "ok", said)

    def _gap(self, one: Tensor, other: Tensor) -> float:
        """The largest difference of scores; a label that one of them lacks has its floor there.

        The vocabulary may have grown between the two.
        """
        columns = max(one.shape[1], other.shape[1])
        meaning = replace(meaning_of(self.victim), missing="floor")
        both = [meaning.filled(widened(scores, columns)) for scores in (one, other)]
        return float((both[0] - both[1]).nan_to_num().abs().max())

    def _batch(self) -> Finding:
        """The same images in calls of one."""
        if self.traits.randomised:
            return Finding("batch size", "ok", "not looked at: the victim is randomised")
        scores, few = self.sample.scores, min(_ALONE, len(self.data))
        alone, errors = self.sample.ask_apart(self.data.images[:few], 1)
        if errors:
            text = f"an image in a call of its own gets no scores: {next(iter(errors.values()))}"
            return Finding("batch size", "failure", text)
        gap = self._gap(alone, scores[:few])
        text = f"alone and in a batch, scores differ by {gap:.2g} at most"
        if bool((top_labels(alone) != top_labels(scores[:few])).any()) or gap > 1e-2:
            advice = "answers depend on what else is in the batch (BatchNorm in training mode?)"
            return Finding("batch size", "failure", f"{text}: {advice}")
        if gap > 1e-4:
            return Finding("batch size", "warning", f"{text}: results may vary with batch_size")
        return Finding("batch size", "ok", text)

    def _throughput(self) -> Finding:
        size = min(self.size, len(self.data))
        return Finding("throughput", "ok", f"{self.sample.speed:.0f} images/s in calls of {size}")

    def _cost(self) -> Finding:
        minutes = self.planned / self.sample.speed / 60
        text = (
            f"at most {self.planned} queries for each goal and pixel budget, about "
            f"{minutes:.1f} minutes"
        )
        return Finding("cost", "ok", text)
