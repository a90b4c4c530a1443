"""Tensors that belong together, one entry per problem."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields, is_dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Shared:
    """A tensor in `Rows` that is the same for all problems: a table, and no state.

    Attributes:
        values: the tensor.
    """

    values: Tensor


class Rows:
    """A dataclass whose tensors have one entry per problem along their first axis.

    That is all the loop needs to know to drop finished problems and to let new ones in. A tensor
    that belongs to all problems is declared as `Shared`.
    """

    def pick(self, rows: Tensor | slice) -> Self:
        """The problems ``rows`` only; for a slice, without copying."""
        picked = copy.copy(self)
        for name, value in self._parts().items():
            if isinstance(value, Rows):
                setattr(picked, name, value.pick(rows))
            else:
                at = rows if isinstance(rows, slice) else rows.to(value.device)
                setattr(picked, name, value[at])
        return picked

    def replace(self, rows: Tensor, fresh: Rows) -> None:
        """Let the problems of ``fresh`` take the places ``rows``."""
        for name, value in self._parts().items():
            other = getattr(fresh, name)
            if isinstance(value, Tensor):
                value[rows.to(value.device)] = other
            else:
                value.replace(rows, other)

    def where(self, which: Tensor, other: Rows) -> Self:
        """These problems where the ``(n,)`` ``which`` says so, those of ``other`` elsewhere."""
        mixed = copy.copy(self)
        for name, value in self._parts().items():
            rest = getattr(other, name)
            if isinstance(value, Tensor):
                at = which.view(-1, *(1,) * (value.dim() - 1))
                setattr(mixed, name, torch.where(at, value, rest))
            else:
                setattr(mixed, name, value.where(which, rest))
        return mixed

    def _parts(self) -> dict[str, Tensor | Rows]:
        """What there is of each problem."""
        assert is_dataclass(self)  # as its subclasses are
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: v for name, v in values.items() if isinstance(v, Tensor | Rows)}
