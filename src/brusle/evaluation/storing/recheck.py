"""A stored evaluation, looked at again: is every row as it was stored, does every success hold?

Every row, whatever its status, must fit its checksum, its problem and its setting, and its columns
must agree with each other (`audit`); its trace, if there is one, must end at its final image. Each
adversarial image is rebuilt from the original and the stored edits, must keep the pixel budget, get
the answer that is stored, and reach its goal once more after a round trip through an 8-bit PNG.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brusle import rng
from brusle.answers import Answers
from brusle.batching import default_batch_size
from brusle.data import Data
from brusle.data.fit import check_fit
from brusle.errors import BrusleError, DataError, InputError
from brusle.evaluation.record import Row, Setting, StoredTraits
from brusle.evaluation.storing.audit import RowAudit, setting_faults
from brusle.evaluation.storing.digest import rows_digest
from brusle.evaluation.storing.opening import put_before, victim_of
from brusle.evaluation.storing.rows import edits_of, rebuild
from brusle.evaluation.storing.runs import Run
from brusle.evaluation.storing.store import ExaminedRow
from brusle.oracle import Oracle
from brusle.scores import ABSENT
from brusle.terms import Terms
from brusle.verify import holds, image_fault, missed_goal, saved_as_png, top_of
from brusle.victim import Victim, traits
from brusle.victims import recorded, timed

_FRESH = -1  # a restart that no attack has: another noise than the run has seen
_TOLERANCE = 0.01  # of scores: other hardware, other batches and half precision stay below


@dataclass(frozen=True)
class Mismatch:
    """Something stored that does not hold.

    Attributes:
        setting: number of the setting in the store; 0 of what is said about the whole run.
        attack: its attack, goal and pixels, for people.
        image: what the image is called; empty of what is said about the setting.
        target: label to reach; None if untargeted.
        reason: what was found instead.
        chance: the victim is randomised, and this one answer missed the goal: no fault.
        success: it is a stored success.
    """

    setting: int
    attack: str
    image: str
    target: int | None
    reason: str
    chance: bool = False
    success: bool = False


@dataclass(frozen=True)
class Recheck:
    """What `recheck` found.

    Attributes:
        victim: who was asked.
        randomised: its answers vary, so this was one fresh draw.
        rows: all stored rows.
        checked: those that are successes.
        mismatches: what did not hold.
        digest: SHA-256 of the rows (`rows_digest`); empty if some cannot be read.
    """

    victim: str
    randomised: bool
    rows: int
    checked: int
    mismatches: tuple[Mismatch, ...]
    digest: str = ""

    @property
    def held(self) -> int:
        """How many successes hold."""
        return self.checked - sum(mismatch.success for mismatch in self.mismatches)

    @property
    def sound(self) -> int:
        """How many rows are as they were stored, whatever a randomised victim says now."""
        return self.rows - sum(bool(d.image) and not d.chance for d in self.mismatches)

    @property
    def failed(self) -> bool:
        """Whether something did not hold for another reason than chance."""
        return any(not mismatch.chance for mismatch in self.mismatches)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"held": self.held, "sound": self.sound, "failed": self.failed}


def recheck(
    folder: str | Path,
    victim: Any = None,
    data: Data | None = None,
    *,
    defences: Sequence[str] | None = None,
    device: str = "auto",
    batch_size: int | None = None,
    timeout: float | None = None,
    terms: Terms | None = None,
    replay: bool = False,
) -> Recheck:
    """Look at every row of a run folder, and ask the victim again for every success.

    Args:
        folder: the run folder.
        victim: a name instead of the stored one (the run's defences are put before it), or the
            victim itself as `brusle.evaluate` takes it. The stored one is opened only if that
            runs no code of others.
        data: where the original images are, if not where the run says.
        defences: defences to put before a victim that is opened by name, instead of the run's.
        device: where the victim runs.
        batch_size: most images in one call of the victim; None chooses by image size.
        timeout: most seconds that one call of the victim may take.
        terms: on which terms a service is asked.
        replay: nobody is asked: the answers are those of the journal in the folder.
    """
    run = Run.open(folder, data)
    with run.store:
        if replay:
            if victim is not None:
                raise InputError("a replay asks nobody: leave --victim out, or --replay")
            model: Victim = recorded(None, folder, replay=True)
        else:
            model = timed(victim_of(run, victim, device, defences, terms), timeout)
        put_before(run, model)
        shape = run.shape
        check_fit(run.originals.source, shape, model)
        size = batch_size or default_batch_size(shape, model.device)
        mismatches = list(_mismatches_of_run(run, model)) if victim is None and data is None else []
        rows = checked = 0
        for key, setting in run.store.settings_by_key().items():
            mismatches += _mismatches_of_setting(key, setting)
            found = sorted(run.store.examine(setting.number), key=lambda one: one.image)
            rows += len(found)
            checked += sum(_is_success(one) for one in found)
            for start in range(0, len(found), size):
                mismatches += _Batch(run, setting, model, found[start : start + size]).mismatches()
        digest = ""
        with suppress(DataError):  # a damaged row is among the mismatches
            digest = rows_digest(run)
    randomised = traits(model).randomised
    return Recheck(model.name, randomised, rows, checked, tuple(mismatches), digest)


def _mismatches_of_run(run: Run, victim: Victim) -> Iterator[Mismatch]:
    """What the store says of victim and data, which are the ones that it names."""
    now = {
        "traits": StoredTraits.of(victim),
        "randomised": traits(victim).randomised,
        "classes": tuple(run.originals.source.classes),
    }
    for name, value in now.items():
        if getattr(run.about, name) != value:
            yield Mismatch(0, "the run", "", None, f"what it says about {name!r} is not so")


def _mismatches_of_setting(key: str, setting: Setting) -> Iterator[Mismatch]:
    for reason in setting_faults(key, setting):
        yield Mismatch(setting.number, setting.title, "", None, reason)


def _is_success(found: ExaminedRow) -> bool:
    return found.row is not None and found.row.status == "success"


class _Batch:
    """Rows of one setting that are looked at together."""

    def __init__(
        self, run: Run, setting: Setting, victim: Victim, found: Sequence[ExaminedRow]
    ) -> None:
        self._run, self._setting, self._victim, self._found = run, setting, victim, found
        self._audit = RowAudit(setting, victim.output, traits(victim))

    def mismatches(self) -> Iterator[Mismatch]:
        """What does not hold: one for each row, with all reasons."""
        images: dict[int, Tensor] = {}
        reasons: dict[int, list[str]] = {}
        for at, one in enumerate(self._found):
            reasons[at] = [one.fault] if one.fault else []
            if one.row is not None:
                reasons[at] += self._audit.contradictions(one.row)
                image = self._rebuilt(one.row, reasons[at])
                reasons[at] += self._faults_of_trace(one.row)
                if image is not None and one.row.status == "success":
                    images[at] = image
        missed = self._ask(images, reasons)
        for at, one in enumerate(self._found):
            if reasons[at] or at in missed:
                said = [*reasons[at], missed[at]] if at in missed else reasons[at]
                yield Mismatch(
                    self._setting.number,
                    self._setting.title,
                    one.image,
                    None if one.row is None else one.row.target,
                    "; ".join(said),
                    chance=self._audit.traits.randomised and not reasons[at],
                    success=_is_success(one),
                )

    def _rebuilt(self, row: Row, reasons: list[str]) -> Tensor | None:
        """The final image; None, and a reason more, if there cannot be one."""
        try:
            original = self._run.originals.take([row.image])[0]
            image = rebuild(row, original)
        except BrusleError as error:
            reasons.append(str(error))
            return None
        fault = image_fault(original, image, self._setting.pixels)
        if row.status == "success" and fault:
            reasons.append(fault)
            return None
        return image

    def _faults_of_trace(self, row: Row) -> Iterator[str]:
        """A trace must be whole, and end at the final image of its row."""
        try:
            trace = self._run.trace(self._setting, row)
            positions, levels = edits_of(row, self._run.shape)
        except BrusleError as error:
            yield str(error)
            return
        if trace is not None:
            last = trace.improvements[-1]
            same = np.array_equal(last.positions, positions)
            if not same or not np.array_equal(last.levels, levels) or last.query > row.queries:
                yield "its trace does not end at its final image"

    def _ask(self, images: dict[int, Tensor], reasons: dict[int, list[str]]) -> dict[int, str]:
        """Ask for each image; add what is wrong to ``reasons``, and return whose goal is missed."""
        if not images:
            return {}
        pictures = torch.stack(list(images.values()))
        saved = saved_as_png(pictures)
        rows = [row for at in images if (row := self._found[at].row) is not None]
        streams = rng.streams(
            self._setting.seed, torch.tensor([row.problem for row in rows]), _FRESH
        )
        oracle = Oracle(self._victim, len(rows), limit=0, batch_size=len(rows), streams=streams)
        answers = oracle.ask_once(torch.arange(len(rows)), saved, "verify")
        listed = self._clean_lists(oracle, rows) if self._setting.success == "new" else None
        stored = answers
        if not torch.equal(saved, pictures):  # originals that are not of 8-bit levels
            stored = oracle.ask_once(torch.arange(len(rows)), pictures, "verify")
        missed: dict[int, str] = {}
        for position, (at, row) in enumerate(zip(images, rows, strict=True)):
            if position in answers.errors:
                reasons[at].append(answers.errors[position])
                continue
            said = _scores(answers, position)
            aims = (row.label, row.target, self._setting.success)
            if not holds(said, *aims, None if listed is None else listed[position]):
                missed[at] = missed_goal(top_of(said))
            elif not self._audit.traits.randomised and position not in stored.errors:
                open_ended = self._audit.traits.vocabulary is not None
                reasons[at] += _other_answer(row, _scores(stored, position), open_ended)
        return missed

    def _clean_lists(self, oracle: Oracle, rows: Sequence[Row]) -> NDArray[np.bool_]:
        """``(n, classes)``: which labels the victim names for the clean images."""
        clean = self._run.originals.take([row.image for row in rows])
        answers = oracle.ask_once(torch.arange(len(rows)), clean, "clean")
        named: NDArray[np.bool_] = (answers.values > ABSENT).cpu().numpy()
        return named


def _scores(answers: Answers, position: int) -> NDArray[np.float64]:
    scores: NDArray[np.float64] = answers.values[position].double().cpu().numpy()
    return scores


def _other_answer(row: Row, now: NDArray[np.float64], open_ended: bool) -> list[str]:
    """Whether scores differ from the stored ones by more than floating point explains.

    Args:
        row: the row.
        now: what the victim says now.
        open_ended: the number of its labels may have grown since.
    """
    before = np.frombuffer(row.scores) if len(row.scores) % 8 == 0 else now[:0]
    if open_ended:  # labels that were not known yet are absent
        width = max(len(before), len(now))
        before, now = (
            np.pad(one, (0, width - len(one)), constant_values=ABSENT) for one in (before, now)
        )
    if before.shape != now.shape:
        return [f"the victim gives {len(now)} scores, and {len(before)} are stored"]
    listed = np.isfinite(now)
    if (listed != np.isfinite(before)).any():
        return ["the victim's list has other labels than the stored one"]
    far = float(np.abs(before[listed] - now[listed]).max(initial=0))
    if not far <= _TOLERANCE * (1 + float(np.abs(now[listed]).max(initial=0))):
        return [f"the victim's scores differ by {far:.2g} from the stored ones"]
    return []
