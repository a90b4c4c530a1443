"""The global random numbers of the process, of one's own for a while.

Attacks of others draw from the generators that everybody shares: Python's, NumPy's and torch's.
Here each of their runs gets numbers of its own, so that a result depends neither on what ran before
nor on what runs in between, and afterwards the generators are as they were. NumPy's new generators
that nobody seeds, as in ``default_rng()``, follow from these numbers, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.random import bit_generator

_NUMPY_SEEDS = 2**32  # what its global generator can be seeded with


@dataclass
class OwnRandomness:
    """One stream of global random numbers, which others interrupt.

    Attributes:
        seed: where it begins; not negative.
    """

    seed: int
    _left_at: tuple[Any, ...] | None = field(default=None, repr=False)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The global generators go on where this stream was left; and afterwards as before."""
        before, entropy = _states(), _set_entropy(random.getrandbits)
        try:
            if self._left_at is None:
                _seed(self.seed)
            else:
                _restore(self._left_at)
            yield
        finally:
            self._left_at = _states()
            _restore(before)
            _set_entropy(entropy)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % _NUMPY_SEEDS)  # noqa: NPY002 - it is the one that others use
    torch.default_generator.manual_seed(seed)
    if _has_gpus():
        torch.cuda.manual_seed_all(seed)


def _set_entropy(bits: Callable[[int], int]) -> Callable[[int], int]:
    """Where NumPy finds numbers for what is not seeded; returns where it did before."""
    before: Callable[[int], int] = bit_generator.randbits  # type: ignore[attr-defined]
    bit_generator.randbits = bits  # type: ignore[attr-defined]
    return before


def _has_gpus() -> bool:
    """Whether there are any, and this process uses them."""
    used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return used


def _states() -> tuple[Any, ...]:
    gpus = torch.cuda.get_rng_state_all() if _has_gpus() else []
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002 - as above
    return random.getstate(), numpy_state, torch.default_generator.get_state(), gpus


def _restore(states: tuple[Any, ...]) -> None:
    python_state, numpy_state, torch_state, gpus = states
    random.setstate(python_state)
    np.random.set_state(numpy_state)  # noqa: NPY002 - as above
    torch.default_generator.set_state(torch_state)
    if gpus:
        torch.cuda.set_rng_state_all(gpus)
