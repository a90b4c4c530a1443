"""What an attack of somebody else gets as its model: a function of images, and what it may know.

Images go out as they are, but for what no image file could hold: values outside [0, 1] are taken
to the bound, and differences from the original below `TRACE`, which arithmetic leaves behind, are
none. A pixel that was scaled to 255 and back would count as changed otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from brusle.attacks.external.talk import Talk
from brusle.errors import InputError
from brusle.problems import flatten_pixels, to_levels
from brusle.scores import ABSENT, Scores, widened

Output = Literal["scores", "logits", "probabilities"]
Arrays = Literal["torch", "numpy"]
TRACE = 1e-5


@dataclass(frozen=True)
class Asking:
    """How the images of an attack are read, on one problem.

    Attributes:
        original: ``(1, c, h, w)``.
        arrays: what goes in and out.
        levels: colours are rounded to 8-bit levels before they are asked for.
    """

    original: Tensor
    arrays: Arrays
    levels: bool

    def given(self, values: Tensor) -> Any:
        """Tensors or NumPy arrays, to be changed at will."""
        return values.clone() if self.arrays == "torch" else values.cpu().numpy().copy()

    def read(self, images: Any) -> Tensor:
        """Images as they will be asked for: ``(k, h * w, c)`` on the CPU."""
        if isinstance(images, Tensor) and images.requires_grad and torch.is_grad_enabled():
            raise InputError(
                "it wants gradients through the model, and only answers are counted here: take an "
                "attack that needs none, or brusle's own white-box ones (pgd0, sigma-zero)"
            )
        asked = self._tensor(images)
        shape = tuple(self.original.shape[1:])
        if asked.shape[1:] != shape or asked.dim() != 4:
            raise InputError(
                f"it asked for images of shape {tuple(asked.shape)}: they must be (number, "
                f"{', '.join(map(str, shape))})"
            )
        asked = asked.detach().cpu().float()
        if bool(asked.isnan().any()):
            raise InputError("it asked for an image with NaN in it")
        asked = asked.clamp(0, 1)
        original = self.original.cpu()
        same = (asked - original).abs() < TRACE
        if self.levels:
            same = (to_levels(asked) == to_levels(original)).all(1, keepdim=True)
            asked = to_levels(asked)
        return flatten_pixels(torch.where(same, original, asked))

    def _tensor(self, images: Any) -> Tensor:
        try:
            return torch.as_tensor(images)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"it asked for a {type(images).__name__}, which is no array of images"
            ) from error


class Model:
    """The model of an external attack: ``model(images) -> scores``, every image a query.

    Attributes:
        shape: channels, height and width.
        pixels: the budget: how many pixels may differ from the original.
        targeted: whether there is a target.
        seed: a number for generators of the attack's own, other for each image and restart.
        bounds: of the values of an image.
    """

    bounds = (0.0, 1.0)

    def __init__(self, talk: Talk, asking: Asking, pixels: int, targeted: bool, seed: int) -> None:
        self._talk, self._asking = talk, asking
        _, c, h, w = asking.original.shape
        self.shape = (c, h, w)
        self.pixels, self.targeted, self.seed = pixels, targeted, seed

    @property
    def left(self) -> int:
        """How many images can still be asked for."""
        return self._talk.left

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self._talk.classes

    def __call__(self, images: Any) -> Any:
        """``(k, classes)`` scores of ``(k, c, h, w)`` images, as float32; see `numbers_of`."""
        asked = self._asking.read(images)
        scores = self._talk.ask(asked) if len(asked) else torch.zeros(0, self.classes)
        scores = scores.clone()  # it may have been made in inference mode
        if isinstance(images, Tensor):
            return scores.to(images.device)
        return scores if self._asking.arrays == "torch" else scores.numpy()


def numbers_of(answers: list[Scores], output: Output) -> Tensor:
    """``(k, classes)`` float32 numbers of answers that are of one image each.

    A victim's own scores are given as they are, unless it names its best labels only: then they are
    shares, and absent labels count as its ``missing`` says.

    Args:
        answers: what the victim has said.
        output: what the attack wants.
    """
    columns = max(one.values.shape[1] for one in answers)
    values = torch.cat([widened(one.values, columns) for one in answers])
    meaning = answers[0].meaning
    if output == "probabilities" or (output == "scores" and meaning.gives == "partial"):
        values = meaning.shares(values)
    elif output == "logits":
        values = meaning.logits(values)
    # what has no number yet is a class that nobody had named
    return values.masked_fill(values == ABSENT, 0).float().cpu()
