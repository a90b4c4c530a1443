"""A stored evaluation, asked again: does every success hold?

Nothing of the run is believed but its rows. Each adversarial image is rebuilt from the original and
the stored edits, must be the problem that was attacked, keep the pixel budget, and reach its goal
once more after a round trip through an 8-bit PNG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brusle import rng
from brusle.errors import BrusleError, DataError
from brusle.evaluation.pairs import Originals
from brusle.evaluation.provenance import fingerprint
from brusle.evaluation.runs import Run, open_victim, rebuild
from brusle.evaluation.store import Record, Row
from brusle.evaluation.workload import Data, check_fit
from brusle.oracle import Oracle, Victim, traits
from brusle.problems import changed_pixels
from brusle.verify import png_round_trip
from brusle.victims import default_batch_size, timed

_FRESH = -1  # a restart that no attack has: another noise than the run has seen


@dataclass(frozen=True)
class Doubt:
    """A stored success that did not hold.

    Attributes:
        setting: number of the setting in the store.
        attack: its attack, goal and pixels, for people.
        image: what the image is called.
        target: label to reach; None if untargeted.
        reason: what was found instead.
        chance: the victim is randomised, and this one answer missed the goal: no fault.
    """

    setting: int
    attack: str
    image: str
    target: int | None
    reason: str
    chance: bool = False


@dataclass(frozen=True)
class Recheck:
    """What `recheck` found.

    Attributes:
        victim: who was asked.
        randomised: its answers vary, so this was one fresh draw.
        checked: stored successes.
        doubts: those that did not hold.
    """

    victim: str
    randomised: bool
    checked: int
    doubts: tuple[Doubt, ...]

    @property
    def held(self) -> int:
        """How many successes hold."""
        return self.checked - len(self.doubts)

    @property
    def failed(self) -> bool:
        """Whether a success did not hold for another reason than chance."""
        return any(not doubt.chance for doubt in self.doubts)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"held": self.held, "failed": self.failed}


def recheck(
    folder: str | Path,
    victim: Any = None,
    data: Data | None = None,
    *,
    device: str = "auto",
    batch_size: int | None = None,
    timeout: float | None = None,
) -> Recheck:
    """Ask the victim again for every success of a run folder.

    Args:
        folder: the run folder.
        victim: a name instead of the stored one (the run's defences are put before it), or the
            victim itself as `brusle.evaluate` takes it.
        data: where the original images are, if not where the run says.
        device: where the victim runs.
        batch_size: most images in one call of the victim; None chooses by image size.
        timeout: most seconds that one call of the victim may take.
    """
    run = Run.open(folder, data)
    model = timed(open_victim(run.about, victim, device), timeout)
    _check_weights(run.about, model)
    run.like = model
    shape = run.about["shape"]
    check_fit(run.originals.place, shape, model)
    batch_size = batch_size or default_batch_size(shape, model.device)
    checked = 0
    doubts: list[Doubt] = []
    for setting in run.settings:
        hits = [row for row in run.stored(setting) if row.status == "success"]
        checked += len(hits)
        for start in range(0, len(hits), batch_size):
            doubts += _doubts(setting, hits[start : start + batch_size], run.originals, model)
    return Recheck(model.name, traits(model).randomised, checked, tuple(doubts))


def _check_weights(about: Mapping[str, Any], victim: Victim) -> None:
    mine, stored = fingerprint(victim), about.get("weights", "")
    if mine != stored:
        raise DataError(
            f"{victim.name} has weights {mine or 'unknown'}, the run had {stored or 'unknown'}: "
            f"give the victim of the run with --victim"
        )


def _doubts(
    setting: Record, rows: Sequence[Row], originals: Originals, victim: Victim
) -> Iterator[Doubt]:
    """Those of ``rows``, one batch, that do not hold."""
    faults, images = _rebuild_all(rows, originals, setting.pixels)
    missed = _missed(setting.seed, [rows[at] for at in images], list(images.values()), victim)
    answers = dict(zip(images, missed, strict=True))
    for at, row in enumerate(rows):
        reason, chance = (faults[at], False) if at in faults else answers[at]
        if reason:
            yield Doubt(setting.number, setting.title, row.image, row.target, reason, chance)


def _rebuild_all(
    rows: Sequence[Row], originals: Originals, budget: int
) -> tuple[dict[int, str], dict[int, Tensor]]:
    """By position: what is wrong without asking anybody, and the images of the other rows."""
    faults: dict[int, str] = {}
    images: dict[int, Tensor] = {}
    for at, row in enumerate(rows):
        try:
            original = originals.take([row.image])[0]
            image = rebuild(row, original)
        except BrusleError as error:
            faults[at] = str(error)
            continue
        changed = int(changed_pixels(image[None], original[None]))
        if changed > budget:
            faults[at] = f"{changed} pixels differ from the original, {budget} are allowed"
        else:
            images[at] = image
    return faults, images


def _missed(
    seed: int, rows: Sequence[Row], images: Sequence[Tensor], victim: Victim
) -> list[tuple[str, bool]]:
    """Ask once for each image: why its goal is not reached (empty if it is), and if by chance."""
    if not rows:
        return []
    saved = torch.from_numpy(png_round_trip(torch.stack(list(images)).numpy()))
    ids = torch.tensor([row.problem for row in rows])
    streams = rng.streams(seed, ids, _FRESH)
    oracle = Oracle(victim, len(rows), limit=0, batch_size=len(rows), streams=streams)
    answers = oracle.ask_once(torch.arange(len(rows)), saved, "verify")
    scores = answers.scores.float().cpu().numpy()
    said: list[tuple[str, bool]] = []
    for at, row in enumerate(rows):
        if at in answers.errors:
            said.append((answers.errors[at], False))
            continue
        label = int(scores[at].argmax())
        holds = label != row.label if row.target is None else label == row.target
        reason = "" if holds else f"after an 8-bit PNG round trip the victim says class {label}"
        said.append((reason, traits(victim).randomised))
    return said
