"""The books: queries per problem, by what they were for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from brusle.errors import BrusleError

Column = Literal["clean", "initial", "search", "verify", "lost", "backward"]
COLUMNS: tuple[Column, ...] = ("clean", "initial", "search", "verify", "lost", "backward")


class BudgetError(BrusleError):
    """An attack asked for more queries than it was given: a bug in that attack."""


@dataclass
class Ledger:
    """Queries per problem, by what they were for. The budget covers ``initial + search``.

    ``lost`` and ``backward`` are no queries: images without a usable answer, and gradients.
    ``replayed`` says how many of the queries were answered from a journal: they count as queries
    and cost nothing. What is replayed depends on when a run was interrupted, not on the attack, so
    that it is no column of a row.
    """

    clean: Tensor
    initial: Tensor
    search: Tensor
    verify: Tensor
    lost: Tensor
    backward: Tensor
    replayed: Tensor

    @classmethod
    def empty(cls, problems: int) -> Ledger:
        """A ledger of zeros."""
        return cls.of(lambda _: torch.zeros(problems, dtype=torch.int64))

    @classmethod
    def of(cls, column: Callable[[str], Tensor]) -> Ledger:
        """A ledger of these columns; nothing in it was replayed."""
        columns = {name: column(name) for name in COLUMNS}
        return cls(**columns, replayed=torch.zeros_like(columns["clean"]))

    @property
    def attack(self) -> Tensor:
        """``(n,)`` queries that the attack itself has spent."""
        return self.initial + self.search

    @property
    def total(self) -> Tensor:
        """``(n,)`` answered queries of all kinds."""
        return self.clean + self.attack + self.verify

    def row(self, problem: int) -> dict[str, int]:
        """One problem's entries by name."""
        return {column: int(getattr(self, column)[problem]) for column in COLUMNS}
