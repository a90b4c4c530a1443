"""The victim behind a service: reads pictures for it, asks it, and lists its labels."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from brusle.calls import call
from brusle.data.images import decode_picture, fit_for, frame
from brusle.defences import Confidences, taken_apart
from brusle.errors import VictimError
from brusle.victim import Victim, call_victim, traits
from brusle.victims.fingerprints import fingerprint
from brusle.victims.options import whole_framing

Labels = list[tuple[int, float]]  # class and score, the best first


@dataclass(frozen=True)
class Model:
    """A victim as a service has it.

    Attributes:
        victim: the victim.
        top: most labels of a list.
    """

    victim: Victim
    top: int = 10

    @cached_property
    def name(self) -> str:
        """What the model is called in addresses."""
        behind, _ = taken_apart(self.victim)
        last = re.split(r"[:/]", behind.name.partition("?")[0])[-1]
        return re.sub(r"[^A-Za-z0-9_]+", "-", last).strip("-") or "model"

    @cached_property
    def version(self) -> str:
        """Another one for other weights."""
        return fingerprint(self.victim) or "1"

    @cached_property
    def shape(self) -> tuple[int, int, int] | None:
        """(channels, height, width) of its images, if fixed."""
        return fit_for(traits(self.victim))[1]

    @property
    def classes(self) -> int | None:
        """How many classes there are, if that is known."""
        names = traits(self.victim).classes
        return len(names) if names else None

    def title(self, number: int) -> str:
        """What a class is called."""
        names = traits(self.victim).classes
        return str(names[number]) if names else f"class {number}"

    def picture(self, content: bytes) -> Tensor:
        """An encoded image as the victim takes it, brought to its size.

        Raises:
            BrusleError: it cannot be read, or not be brought to that size.
        """
        framing, shape = fit_for(traits(self.victim))
        if framing is None and shape is not None:
            framing = whole_framing(shape[1:])
        decoded = decode_picture(io.BytesIO(content), "the image", shape[0] if shape else 3)
        return frame(decoded, "the image", shape, framing)

    def ask(self, images: Sequence[Tensor], keys: Sequence[int]) -> Tensor:
        """``(n, classes)`` float64 scores of ``(c, h, w)`` images, as the victim gives them."""
        alike = len({image.shape for image in images}) == 1
        batches = [slice(None)] if alike else [slice(at, at + 1) for at in range(len(images))]
        rows = [self._answer(torch.stack([*images[at]]), keys[at]) for at in batches]
        return torch.cat(rows)

    def _answer(self, images: Tensor, keys: Sequence[int]) -> Tensor:
        victim, known = self.victim, traits(self.victim)
        images, drawn = images.to(victim.device), torch.tensor(keys)
        answer = call(lambda: call_victim(victim, images, drawn), known.patience.call)
        scores = answer.detach().to("cpu", torch.float64)
        if scores.dim() != 2 or len(scores) != len(images):
            raise VictimError(f"the model gave no row of scores for each of {len(images)} images")
        if bool((scores.isnan() | (scores == torch.inf)).any()):
            raise VictimError("the model gave scores that are no finite numbers")
        return scores

    def tensor(self, scores: Tensor) -> NDArray[np.float32]:
        """Scores as a tensor of a service, which knows no absent label: such have a score of 0."""
        return scores.masked_fill(scores == -torch.inf, 0).float().numpy()

    def lists(self, scores: Tensor) -> list[Labels]:
        """A list of labels for each image; all scores become confidences, partial ones stay."""
        if traits(self.victim).gives == "scores" and self.victim.output != "confidences":
            scores = Confidences(self.victim, most=self.top).after(scores)
        return self.best(scores, self.top)

    def best(self, scores: Tensor, most: int) -> list[Labels]:
        """The best classes of each image, as far as they score at all."""
        none = -torch.inf if self.victim.output == "logits" else 0.0
        order = scores.sort(dim=1, descending=True, stable=True)
        rows = zip(order.indices.tolist(), order.values.tolist(), strict=True)
        return [
            [(number, score) for number, score in zip(*row, strict=True) if score > none][:most]
            for row in rows
        ]
