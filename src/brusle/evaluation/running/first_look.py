"""The cheap part of `brusle check`, before an evaluation begins: it warns, and never stops a run.

It asks for some of the images that the evaluation will ask for anyway. These queries are the
evaluation's own and not the attacks': they are kept with the session, and no attack's random
numbers or ledger know of them.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch

from brusle import rng
from brusle.data.sets import balanced_order
from brusle.evaluation.running.diagnosis import (
    Finding,
    Sample,
    accuracy,
    finite,
    input_range,
    output_kind,
)
from brusle.evaluation.running.victim import terms_of
from brusle.evaluation.running.workload import Workload
from brusle.evaluation.storing.store import Store
from brusle.problems import Problems
from brusle.text import shown
from brusle.victim import Victim

IMAGES = 64  # at most, whatever the batch size: the same images, the same warnings
FEW = 8  # where each of them may cost money
OnWarning = Callable[[str], None]
_BAD = 0.5  # with a lower accuracy, other ranges of the input are tried
_RESTART = -2  # that no attack has: the noise of a randomised victim is another


def look_first(
    store: Store,
    victim: Victim,
    workload: Workload,
    images: Sequence[int],
    seed: int,
    batch_size: int,
    on_warning: OnWarning,
) -> None:
    """Look at ``victim``, say what is plainly wrong with it, and note that in ``store``.

    Args:
        store: of the run; a warning takes the place of an earlier one on the same topic.
        victim: the victim.
        workload: the images.
        images: numbers of those that are to be attacked; nothing is asked if there are none.
        seed: same seed, same result.
        batch_size: most images in one call of the victim.
        on_warning: called with each warning.
    """
    if not images:
        return
    most = IMAGES if terms_of(victim) is None else FEW
    sample = _sample(victim, workload, sorted(set(images)), seed, batch_size, most)
    devices = [victim.device] if victim.device.type == "cuda" else []
    with torch.random.fork_rng(devices):  # a victim may draw numbers of its own
        found = {finding.topic: finding.text for finding in _findings(sample)}
    about = store.about()
    assert about is not None  # the session is written down before anybody is asked
    *before, session = about.sessions
    asked = {"preflight_queries": sample.answered, "preflight_lost": sample.lost}
    sessions = (*before, session.model_copy(update=asked))
    now = {"warnings": about.warnings | found, "sessions": sessions}
    store.write_about(about.model_copy(update=now))
    for topic, text in found.items():
        on_warning(f"{topic}: {text}")


def warn(text: str) -> None:
    """A Python warning that points at whoever has called brusle."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("brusle."):
        frame, level = frame.f_back, level + 1
    warnings.warn(shown(text), stacklevel=level + 1)


def _sample(
    victim: Victim,
    workload: Workload,
    numbers: Sequence[int],
    seed: int,
    batch_size: int,
    most: int,
) -> Sample:
    """Some of the images, evenly over the classes."""
    entries = [workload.manifest.entries[at] for at in numbers]
    labels = torch.tensor([entry.label for entry in entries])
    chosen = balanced_order(labels)[:most]
    images = workload.originals.take([entries[at].name for at in chosen])
    ids = Problems.make(images, labels[chosen]).ids
    streams = rng.streams(seed, ids, _RESTART)
    return Sample(victim, images, labels[chosen], batch_size, streams)


def _findings(sample: Sample) -> Iterator[Finding]:
    """What is plainly wrong."""
    sample.look()
    if len(sample.errors) == len(sample.images):
        return  # the evaluation will meet that itself, and knows what to do
    if int(sample.labels.max()) >= sample.scores.shape[1]:
        return  # likewise
    # where answers cost money, nobody is asked for more than the images themselves
    fitting = input_range(sample, _BAD if terms_of(sample.victim) is None else 0.0)
    judged = accuracy(sample, explained=fitting.verdict == "failure")
    # a victim that raised may be well again later, and its rows say so
    found = (finite(sample, kind="NaN"), output_kind(sample), judged, fitting)
    yield from (finding for finding in found if finding.verdict == "failure")
