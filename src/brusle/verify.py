"""The second opinion: every reported success is checked again by code that no attack owns.

A success counts only if the adversarial image differs from the original in at most the allowed
number of pixels, lies in [0, 1], and still reaches the goal after it has been written to and
read from an 8-bit PNG. Nothing of the attack is used but its final image.

A randomised victim answers differently each time, so its successes come in two strengths: the first
hit, as the attack reported it, and stable, if more than half of 20 fresh answers reach the goal.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from brusle.answers import Answers
from brusle.oracle import Oracle
from brusle.outcomes import Success
from brusle.problems import Problems
from brusle.victim import traits


def png_round_trip(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Write ``(n, c, h, w)`` images in [0, 1] to 8-bit PNGs and read them back.

    Images share a PNG, one below the other, which is quicker and rounds no differently. PNG knows
    one, three and four channels; any other number is stored as that many grey images.
    """
    n, c, h, w = images.shape
    levels = np.rint(images * 255).astype(np.uint8)
    sheets = levels if c in (1, 3, 4) else levels.reshape(n * c, 1, h, w)
    per_sheet = max(1, 2**22 // (h * w))
    parts = [sheets[i : i + per_sheet] for i in range(0, len(sheets), per_sheet)]
    decoded = np.concatenate([_one_png(part) for part in parts])
    return decoded.reshape(images.shape).astype(np.float32) / np.float32(255)


def _one_png(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    n, c, h, w = images.shape
    sheet = images.transpose(0, 2, 3, 1).reshape(n * h, w, c)
    file = io.BytesIO()
    Image.fromarray(sheet[:, :, 0] if c == 1 else sheet).save(file, "PNG", compress_level=1)
    back = np.asarray(Image.open(io.BytesIO(file.getvalue())))
    return back.reshape(n, h, w, c).transpose(0, 3, 1, 2)


STABLE_DRAWS = 20


@dataclass
class Verdict:
    """What the check found.

    Attributes:
        refused: problem number to the reason why its success does not count.
        unanswered: problem number to the reason why the victim has not said whether it does.
        stable: the problems whose success can be repeated.
    """

    refused: dict[int, str] = field(default_factory=dict)
    unanswered: dict[int, str] = field(default_factory=dict)
    stable: list[int] = field(default_factory=list)


def verify(
    oracle: Oracle,
    problems: Problems,
    images: Tensor,
    rows: list[int],
    pixels: int,
    success: Success = "top1",
    listed: Tensor | None = None,
) -> Verdict:
    """Check ``images`` of the problems ``rows``.

    The victim is asked once per image, `STABLE_DRAWS` times if it is randomised; these queries are
    counted in the ledger's ``verify`` column.

    Args:
        oracle: asks and counts.
        problems: all problems.
        images: ``(n, c, h, w)`` of all problems.
        rows: which of them are reported as successes.
        pixels: the budget.
        success: what counts as one, see `holds`.
        listed: ``(n, classes)`` bool, of all problems: see `holds`.
    """
    verdict = Verdict()
    for row in rows:
        fault = image_fault(problems.images[row], images[row], pixels)
        if fault:
            verdict.refused[row] = fault
    good = [row for row in rows if row not in verdict.refused]
    if not good:
        return verdict
    randomised = traits(oracle.victim).randomised
    draws = draws_of(randomised)
    hits = np.zeros(len(good), dtype=np.int64)
    rounds = _ask(oracle, good, saved_as_png(images[good]), draws)
    for answers in rounds:
        said = answers.values.float().cpu().numpy()
        for at, row in enumerate(good):
            if at in answers.errors:
                verdict.unanswered[row] = answers.errors[at]
                continue
            target = None if problems.targets is None else int(problems.targets[row])
            list_of_clean = None if listed is None else listed[row].numpy()
            aims = (int(problems.labels[row]), target, success, list_of_clean)
            hits[at] += holds(said[at], *aims)
            if not randomised and not hits[at]:
                verdict.refused[row] = missed_goal(top_of(said[at]))
    counted = zip(good, hits, strict=True)
    verdict.stable = [
        row
        for row, count in counted
        if 2 * count > draws and row not in verdict.refused | verdict.unanswered
    ]
    return verdict


def image_fault(original: Tensor, image: Tensor, pixels: int) -> str:
    """Why a ``(c, h, w)`` image cannot be a success within ``pixels``; empty if it can."""
    before, after = original.numpy(), image.numpy()
    changed = int((before != after).any(axis=0).sum())
    if changed > pixels:
        return f"{changed} pixels differ from the original, {pixels} are allowed"
    if not (after.min() >= 0 and after.max() <= 1):
        return f"values from {after.min():g} to {after.max():g} leave [0, 1]"
    return ""


def saved_as_png(images: Tensor) -> Tensor:
    """``(n, c, h, w)`` images as they are after an 8-bit PNG round trip."""
    return torch.from_numpy(png_round_trip(images.numpy()))


def draws_of(randomised: bool) -> int:
    """How often a victim is asked to verify one image."""
    return STABLE_DRAWS if randomised else 1


def reaches(answer: int, label: int, target: int | None) -> bool:
    """Whether a victim that answers with this class has reached the goal of a problem."""
    return answer != label if target is None else answer == target


def holds(
    said: NDArray[np.floating[Any]],
    label: int,
    target: int | None,
    success: Success = "top1",
    listed: NDArray[np.bool_] | None = None,
) -> bool:
    """Whether one answer of the victim is a success of a problem.

    Args:
        said: ``(classes,)`` scores; minus infinity of a label that is not in the list.
        label: the true label.
        target: the label to reach; None if untargeted.
        success: "top1": by the label on top; "absent": the true label is not in the list; "new":
            what is on top is not in the list of the clean image.
        listed: ``(classes,)`` bool: that list, as far as its labels were known then.
    """
    top = top_of(said)
    if success == "absent":
        return bool(np.isneginf(said[label]))
    if success == "new":
        assert listed is not None  # whoever wants that has asked for the clean image
        known = top < len(listed) and bool(listed[top])
        return top >= 0 and top != label and not known
    return reaches(top, label, target)


def top_of(said: NDArray[np.floating[Any]]) -> int:
    """The class on top; -1 if no label is in the list."""
    return -1 if np.isneginf(said).all() else int(said.argmax())


def missed_goal(answer: int) -> str:
    """What is said of an image that does not reach its goal."""
    return f"after an 8-bit PNG round trip the victim says class {answer}"


def _ask(oracle: Oracle, rows: list[int], images: Tensor, draws: int) -> list[Answers]:
    which = torch.tensor(rows)
    with oracle.whole(which, "verify"):
        rounds = [oracle.ask_once(which, images, "verify") for _ in range(draws)]
        for answers in rounds:
            answers.require_one()
    return rounds
