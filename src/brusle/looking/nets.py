"""The module behind a victim, as a copy that nobody else uses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from brusle.defences import taken_apart
from brusle.errors import InputError, VictimError, first_line
from brusle.names import hint
from brusle.victim import Victim, meaning_of, require_scores, traits
from brusle.victims.wrappers import TorchVictim

Hook = Callable[[str, nn.Module, tuple[Any, ...], dict[str, Any], Any], None]


@dataclass(frozen=True)
class Net:
    """A victim's module in evaluation mode, to put hooks on.

    It is a copy that shares its weights with the victim's module. Who attacks the victim meanwhile,
    in another thread, does not call it; and what it keeps in mind is forgotten with it. The module
    itself stays borrowed as long as the copy is used: one that merges weights for evaluation would
    change them when it is given back.

    Attributes:
        victim: the victim.
        module: the copy. Batch normalisations are not merged in it, so that its layers are the
            user's.
        classes: how many scores it gives.
    """

    victim: TorchVictim
    module: nn.Module
    classes: int

    @classmethod
    @contextmanager
    def of(cls, victim: TorchVictim, image: Tensor) -> Iterator[Net]:
        """The net of ``victim``, which is asked for ``image`` first: it says what does not fit."""
        scores = require_scores(victim(image[None]), 1, victim.name)
        with victim.borrowed() as module:
            yield cls(victim, _twin(module, victim.name), scores.shape[1])

    def leaf(self, images: Tensor) -> Tensor:
        """A copy of ``images`` as the module takes them, which autograd can follow."""
        there = images.to(self.victim.device, self.victim.dtype, copy=True)
        return there.requires_grad_()

    def logits(self, images: Tensor) -> Tensor:
        """``(n, classes)``: what is explained, logits, or logarithms of probabilities."""
        # of a copy: a leaf could not be changed in place
        scores: Tensor = self.module(images.clone())
        return meaning_of(self.victim).logits(scores)

    def layer(self, name: str) -> tuple[str, nn.Module]:
        """The layer called ``name``, and its whole name; its beginning may be left out."""
        layers = dict(self.module.named_modules())
        whole = [name] if name in layers else [one for one in layers if one.endswith(f".{name}")]
        if not name or not whole:
            known = [one for one in layers if one]
            raise InputError(f"{self.victim.name} has no layer {name!r}{hint(name, known, most=3)}")
        if len(whole) > 1:
            raise InputError(
                f"{self.victim.name} has several layers {name!r}: say {' or '.join(whole[:3])}"
            )
        return whole[0], layers[whole[0]]

    @contextmanager
    def watched(self, which: Callable[[nn.Module], bool], see: Hook) -> Iterator[None]:
        """Call ``see`` with name, layer, arguments and output of the layers ``which``."""
        found = [(name, part) for name, part in self.module.named_modules() if which(part)]
        handles = [
            part.register_forward_hook(partial(_show, see, name), with_kwargs=True)
            for name, part in found
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def net_behind(victim: Victim) -> TorchVictim | None:
    """The torch module that answers, if there is one and nothing stands before it.

    A time limit or a journal is nothing; a defence is, because what is behind it is not what
    answers. Whoever wants to look behind it asks for ``victim.victim``.
    """
    behind, defences = taken_apart(victim)
    if defences or not isinstance(behind, TorchVictim) or not traits(victim).differentiable:
        return None
    return behind


def _twin(module: nn.Module, name: str) -> nn.Module:
    """A copy of ``module`` with the same weights, not copies of them."""
    tensors = chain(module.parameters(), module.buffers())
    try:
        return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
    except (RuntimeError, TypeError) as error:
        raise VictimError(
            f"{name} cannot be copied ({first_line(error)}): use how='occlusion'"
        ) from error


def batches(count: int, size: int) -> Iterable[slice]:
    """``count`` images, at most ``size`` at a time."""
    return (slice(start, start + size) for start in range(0, count, size))


def enlarged(cells: Tensor, size: tuple[int, int]) -> Tensor:
    """``(n, h, w)`` maps of ``(n, rows, columns)`` cells, bilinear between their centres."""
    grown = nn.functional.interpolate(cells[:, None].float(), size, mode="bilinear")
    return grown[:, 0].cpu()


@contextmanager
def with_gradients() -> Iterator[None]:
    """Autograd is on, whatever mode the caller is in."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def _show(see: Hook, name: str, *seen: Any) -> None:
    see(name, *seen)
