"""A user's module is borrowed: nothing about it is changed for longer than an answer takes."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from brusle.errors import VictimError, first_line
from brusle.trouble import find_trouble

T = TypeVar("T")


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """``module`` in evaluation mode; afterwards each of its parts is in the mode it was in.

    A call that took too long may still have it when the next one begins: the last to leave gives
    it back.
    """
    with _LOCK:
        loan = _loans.setdefault(id(module), _Loan(module))
        loan.borrowers += 1
        if any(part.training for part in module.modules()):
            module.eval()
    try:
        yield
    finally:
        with _LOCK:
            loan.borrowers -= 1
            if not loan.borrowers:
                del _loans[id(module)]
                loan.give_back()


class _Loan:
    """A module that is in use, and the modes that its parts were in before."""

    def __init__(self, module: nn.Module) -> None:
        self.borrowers = 0
        self._before = [(part, part.training) for part in module.modules()]

    def give_back(self) -> None:
        # with the layer's own switch, which may do more than set a flag; parents come first, and
        # what they say to their children is put right when it is the children's turn
        for part, training in self._before:
            if part.training != training:
                part.train(training)


_LOCK = threading.RLock()
_loans: dict[int, _Loan] = {}  # by the identity of the module


class Placed:
    """A module where and in the type that it is wanted; a copy if it is not so itself.

    A module that casts its images itself keeps its types: converted, it would not fit its images.
    """

    def __init__(self, module: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        self._module, self._dtype = module, dtype
        self._device = torch.empty(0, device=device).device  # "cuda" has a number
        self._copy: nn.Module | None = None
        self._state: list[tuple[int, int]] = []
        self._converts, self._decided = True, False

    def answer(self, ask: Callable[[nn.Module], T]) -> T:
        """What ``ask`` gets from the module; with its own types if it cannot do with others."""
        if self._decided:
            return ask(self.current())
        try:
            answer = ask(self.current())
        except RuntimeError as error:  # torch's, if types do not fit
            self._converts = self._copy is None or find_trouble(error) is not None
            if self._converts:
                raise
            try:
                answer = ask(self.current())
            except Exception:
                self._converts = True
                raise error from None
        self._decided = True
        return answer

    def current(self) -> nn.Module:
        """The module, or a copy of it with the weights that it has now."""
        if all(self._fits(tensor) for tensor in _tensors(self._module)):
            return self._module
        state = versions(self._module)
        if self._copy is None or state != self._state:
            self._copy, self._state = self._copied(), state
        return self._copy

    def _fits(self, tensor: Tensor) -> bool:
        typed = not tensor.is_floating_point() or tensor.dtype == self._dtype
        return (typed or not self._converts) and tensor.device == self._device

    def _copied(self) -> nn.Module:
        try:
            with torch.inference_mode(False):  # gradients may be asked of the copy
                copied = copy.deepcopy(self._module)
                return copied.to(self._device, self._dtype if self._converts else None)
        except (RuntimeError, TypeError) as error:
            raise VictimError(
                f"{type(self._module).__name__} cannot be copied to {self._device} as "
                f"{self._dtype} ({first_line(error)}): move and convert it yourself"
            ) from error


def versions(module: nn.Module) -> list[tuple[int, int]]:
    """Changes with every in-place update and every exchange of a weight."""
    return [(id(t), 0 if t.is_inference() else t._version) for t in _tensors(module)]


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()
