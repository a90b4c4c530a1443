"""Tensors with one entry per problem, and tables that all problems share."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brusle.rows import Rows, Shared


@dataclass
class Inner(Rows):
    number: Tensor


@dataclass
class State(Rows):
    table: Shared  # as long as the number of problems, which is no reason to cut it
    loss: Tensor
    inner: Inner
    name: str = "state"


def state(first: int, count: int) -> State:
    numbers = torch.arange(first, first + count)
    return State(Shared(torch.arange(count)), numbers.double(), Inner(numbers.clone()))


def test_shared_tensors_are_neither_picked_nor_replaced() -> None:
    all_of_them = state(0, 4)
    table = all_of_them.table
    for which in (torch.tensor([2, 0]), slice(1, 3)):
        assert all_of_them.pick(which).table is table
    all_of_them.replace(torch.tensor([3, 1]), state(10, 2))
    assert all_of_them.table is table
    assert table.values.tolist() == [0, 1, 2, 3]
    assert all_of_them.where(torch.tensor([True, False] * 2), state(20, 4)).table is table


def test_rows_are_picked_replaced_and_mixed_with_what_is_inside() -> None:
    rows = state(0, 4)
    picked = rows.pick(torch.tensor([2, 0]))
    assert picked.loss.tolist() == picked.inner.number.tolist() == [2, 0]
    assert picked.name == "state"
    mixed = rows.where(torch.tensor([True, False, False, True]), state(20, 4))
    assert mixed.loss.tolist() == mixed.inner.number.tolist() == [0, 21, 22, 3]
    rows.replace(torch.tensor([3, 1]), state(10, 2))
    assert rows.loss.tolist() == rows.inner.number.tolist() == [0, 11, 2, 10]
    assert picked.loss.tolist() == [2, 0]  # a copy
