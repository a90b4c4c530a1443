"""A stored evaluation, asked again: does every success hold?

Nothing of the run is believed but its rows. Each adversarial image is rebuilt from the original and
the stored edits, must be the problem that was attacked, keep the pixel budget, and reach its goal
once more after a round trip through an 8-bit PNG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from brusle import rng
from brusle.data import Dataset, source
from brusle.defences import defend
from brusle.errors import BrusleError, DataError, InputError
from brusle.evaluation.pairs import Manifest
from brusle.evaluation.runner import check_fit, fingerprint, load_data
from brusle.evaluation.store import Row, Store, unpack_edits
from brusle.oracle import Oracle, Victim, traits
from brusle.problems import Problems, changed_pixels
from brusle.verify import png_round_trip
from brusle.victims import as_victim, default_batch_size, load_victim

Data = str | Dataset | tuple[Any, Any]
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
) -> Recheck:
    """Ask the victim again for every success of a run folder.

    Args:
        folder: the run folder.
        victim: a name instead of the stored one (the run's defences are put before it), or the
            victim itself as `brusle.evaluate` takes it.
        data: where the original images are, if not where ``pairs.json`` says.
        device: where the victim runs.
        batch_size: most images in one call of the victim; None chooses by image size.
    """
    with Store.read(folder) as store:
        about, settings = store.about(), store.settings()
        rows = {number: successes(store, number) for number in settings}
    model = victim_of(about, victim, device)
    _check_weights(about, model)
    images = originals(folder, model, data)
    check_fit(images, model)
    shape = Problems.make(images.images[:1], images.labels[:1]).shape
    batch_size = batch_size or default_batch_size(shape, model.device)
    known = dict(zip(images.names, images.images, strict=True))
    doubts: list[Doubt] = []
    for number, setting in settings.items():
        for start in range(0, len(rows[number]), batch_size):
            some = rows[number][start : start + batch_size]
            doubts += _doubts(number, setting, some, known, model)
    checked = sum(map(len, rows.values()))
    return Recheck(model.name, traits(model).randomised, checked, tuple(doubts))


def successes(store: Store, setting: int) -> list[Row]:
    """The successes of a setting, by image and target."""
    found = [row for row in store.rows(setting) if row.status == "success"]
    return sorted(found, key=place)


def place(row: Row) -> tuple[str, int]:
    """Where a row stands among others when people read them."""
    return row.image, -1 if row.target is None else row.target


def title(setting: Mapping[str, Any]) -> str:
    """A stored setting, for people."""
    return f"{setting['attack']} {setting['goal']}, {setting['pixels']} px"


def victim_of(about: Mapping[str, Any], victim: Any = None, device: str = "auto") -> Victim:
    """The victim of a run, by its stored name or by another; see `recheck`."""
    if victim is not None and not isinstance(victim, str):
        return as_victim(victim, device)
    name, *defences = str(about.get("victim", "")).split(" + ")
    if victim is None and ":" not in name:
        raise InputError(
            f"the victim of the run, {name!r}, was made in Python and cannot be opened by name: "
            f"give --victim"
        )
    return defend(load_victim(victim or name, device), defences)


def originals(folder: str | Path, like: Any = None, data: Data | None = None) -> Dataset:
    """The original images of a run, checked against the hashes in its ``pairs.json``.

    Args:
        folder: the run folder.
        like: the victim, which photographs are framed for.
        data: where the images are, if not where ``pairs.json`` says.
    """
    path = Path(folder) / "pairs.json"
    if not path.exists():
        raise DataError(
            f"{folder} has no pairs.json, which names the original images: run the evaluation "
            f"again, which writes it first"
        )
    manifest = Manifest.read(path)
    if data is None and manifest.data == "arrays":
        raise DataError(
            "the images of this run were arrays, which a run folder does not keep: save images and "
            "labels with numpy.savez and give --data npz:FILE"
        )
    if data is None or isinstance(data, str):
        chosen = manifest.select(source(data or manifest.data, like=like))
    else:
        chosen = manifest.select(load_data(data, None, like))
    return replace(chosen, images=Problems.make(chosen.images, chosen.labels).images)


def rebuild(row: Row, known: Mapping[str, Tensor]) -> Tensor:
    """The final image of a row; raises if that cannot be the image that was stored.

    Args:
        row: of the store.
        known: original images by name.
    """
    if row.image not in known:
        raise DataError(
            f"image {row.image} is not in pairs.json, which has the images of the last run in "
            f"this folder"
        )
    original = known[row.image]
    targets = None if row.target is None else [row.target]
    if int(Problems.make(original[None], [row.label], targets).ids[0]) != row.problem:
        raise DataError(f"image {row.image} with its label and target is not what was attacked")
    try:
        return unpack_edits(row.edits, original)
    except (ValueError, IndexError) as error:
        raise DataError(f"the stored edits of image {row.image} are damaged ({error})") from error


def _check_weights(about: Mapping[str, Any], victim: Victim) -> None:
    mine, stored = fingerprint(victim), about.get("weights", "")
    if mine != stored:
        raise DataError(
            f"{victim.name} has weights {mine or 'unknown'}, the run had {stored or 'unknown'}: "
            f"give the victim of the run with --victim"
        )


def _doubts(
    number: int,
    setting: Mapping[str, Any],
    rows: Sequence[Row],
    known: Mapping[str, Tensor],
    victim: Victim,
) -> Iterator[Doubt]:
    """Those of ``rows``, one batch, that do not hold."""
    faults, images = _rebuild_all(rows, known, setting["pixels"])
    missed = _missed(setting["seed"], [rows[at] for at in images], list(images.values()), victim)
    answers = dict(zip(images, missed, strict=True))
    for at, row in enumerate(rows):
        reason, chance = (faults[at], False) if at in faults else answers[at]
        if reason:
            yield Doubt(number, title(setting), row.image, row.target, reason, chance)


def _rebuild_all(
    rows: Sequence[Row], known: Mapping[str, Tensor], budget: int
) -> tuple[dict[int, str], dict[int, Tensor]]:
    """By position: what is wrong without asking anybody, and the images of the other rows."""
    faults: dict[int, str] = {}
    images: dict[int, Tensor] = {}
    for at, row in enumerate(rows):
        try:
            image = rebuild(row, known)
        except BrusleError as error:
            faults[at] = str(error)
            continue
        changed = int(changed_pixels(image[None], known[row.image][None]))
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
