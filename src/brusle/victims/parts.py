"""Modules that return more than one tensor: which part of it the scores are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from brusle.errors import VictimError
from brusle.text import brief

Part = str | int  # a key, an attribute, or a place
_LOGITS = "logits"
_USUAL = (_LOGITS, "scores", "output", "out")  # names that are more likely to be them than others
_MOST = 6  # parts that a message lists
_IN_NAMES = ("export", "torchscript")  # kinds of victims that take it as an option


class OnlyScores(nn.Module):
    """A module that returns one tensor, of one that may return more.

    Args:
        module: the other.
        part: as in `scores_in`.
        name: for messages.
    """

    def __init__(self, module: nn.Module, part: Part | None, name: str) -> None:
        super().__init__()
        self.module, self.part, self.name = module, part, name
        self.training = module.training

    def forward(self, images: Tensor) -> Tensor:
        return scores_in(self.module(images), self.part, self.name)


def scores_in(answer: Any, part: Part | None, name: str) -> Tensor:
    """The scores in what a module returned.

    Args:
        answer: a tensor, or a dict, a tuple or an object that has some.
        part: the key, place or attribute that they are. None takes a tensor as it is, and the
            logits of what models of Hugging Face's transformers return; it guesses nothing else.
        name: of the victim, for messages.
    """
    if isinstance(answer, Tensor):
        if part is None:
            return answer
        raise VictimError(f"{name} returned one tensor and no {part!r}: leave scores= out")
    parts = _tensors(answer)
    wanted: Part | None = _LOGITS if part is None and _is_model_output(answer) else part
    if wanted is not None and wanted in parts:
        return parts[wanted]
    raise VictimError(f"{name} returned {_described(answer, parts)}: {_offer(parts, name)}")


def _tensors(answer: Any) -> dict[Part, Tensor]:
    """The parts of an answer that are tensors."""
    found: dict[Any, Any] = {}
    if isinstance(answer, Mapping):
        found = dict(answer)
    elif isinstance(answer, tuple | list):
        # a named tuple is known by place and name
        found = dict(zip(getattr(answer, "_fields", ()), answer, strict=False))
        found |= dict(enumerate(answer))
    else:
        found = dict(vars(answer)) if hasattr(answer, "__dict__") else {}
        found.setdefault(_LOGITS, getattr(answer, _LOGITS, None))
    return {key: part for key, part in found.items() if isinstance(part, Tensor)}


def _is_model_output(answer: Any) -> bool:
    """Whether transformers says what the parts are called; it is not imported to find out."""
    return any(
        kind.__name__ == "ModelOutput" and kind.__module__.partition(".")[0] == "transformers"
        for kind in type(answer).__mro__
    )


def _described(answer: Any, parts: Mapping[Part, Tensor]) -> str:
    kind = type(answer).__name__
    if not parts:
        return f"{kind}, which has no tensors"
    shapes = [
        f"{brief(key)} ({' x '.join(map(str, part.shape))})"
        for key, part in list(parts.items())[:_MOST]
    ]
    return f"{kind} with {', '.join(shapes)}"


def _offer(parts: Mapping[Part, Tensor], name: str) -> str:
    """What the user can do about it."""
    if not parts:
        return "give a module that returns (n, classes) scores"
    flat = [key for key, part in parts.items() if part.dim() == 2]
    likely = next((key for key in _USUAL if key in parts), (flat or list(parts))[0])
    if name.partition(":")[0] in _IN_NAMES:
        return f"say which are the scores in its name, as in scores={likely}"
    return (
        f"say which are the scores, as in "
        f"brusle.victims.wrap(model, output='logits', scores={likely!r})"
    )
