"""The best mask that PixelBandit has found, and what was put into it in vain."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brusle.attacks.pixel_bandit.elements import Elements
from brusle.attacks.pixel_bandit.log_odds import CLASSES
from brusle.attacks.pixel_bandit.prior import Prior
from brusle.rows import Rows


@dataclass(frozen=True)
class Answer:
    """What the victim said to masks."""

    mask: Elements  # (n, B)
    z: Tensor  # (n, classes): its scores, see `LogOdds.hear`
    loss: Tensor  # (n,)
    random: Tensor  # (n,) bool: the mask was drawn by chance and not proposed


@dataclass
class Best(Rows):
    """The best mask of each problem; before the first answer, any."""

    prior: Prior
    mask: Elements  # (n, B)
    z: Tensor  # (n, classes): its scores
    loss: Tensor  # (n,): inf before the first answer
    tried: Tensor  # (n, k, cells) bool: put into it in vain

    @classmethod
    def unknown(cls, prior: Prior, n: int, b: int) -> Best:
        """No mask was asked yet."""
        device = prior.centre.device
        z = torch.zeros(n, CLASSES, dtype=torch.float64, device=device)
        mask = Elements(
            torch.arange(b, device=device).repeat(n, 1),
            torch.zeros(n, b, dtype=torch.int64, device=device),
        )
        tried = torch.zeros(n, len(prior.colours), prior.count, dtype=torch.bool, device=device)
        return cls(prior, mask, z, z[:, 0] + torch.inf, tried)

    def better(self, answer: Answer) -> Tensor:
        """``(n,)`` bool: which answers are better than that of the best mask."""
        return answer.loss < self.loss

    def take(self, answer: Answer) -> None:
        """A better mask becomes the best and makes all elements new; others were tried."""
        better = self.better(answer)
        index = self.prior.index(answer.mask)
        proposed = (~answer.random)[:, None].expand_as(index)
        tried = self.tried.flatten(1).scatter(1, index, proposed)
        self.tried = (tried & ~better[:, None]).view_as(self.tried)
        self.mask = answer.mask.where(better, self.mask)
        self.z = torch.where(better[:, None], answer.z, self.z)
        self.loss = torch.where(better, answer.loss, self.loss)

    def move(self, mask: Elements, z: Tensor) -> None:
        """Take another mask, with scores z, for the best; where it is the same, nothing changes."""
        same = (mask.pixel == self.mask.pixel) & (mask.colour == self.mask.colour)
        self.mask, self.z = mask, z
        self.tried = self.tried & same.all(1)[:, None, None]

    def admit(self, value: Tensor, candidates: Tensor, mask: Elements, swapped: Tensor) -> Tensor:
        """No pixel twice, no element back that is just taken out, nothing tried in vain.

        Args:
            value: ``(n, k, cells)`` of the candidates in all colours.
            candidates: ``(n, cells)`` pixels.
            mask: the best one, in any order.
            swapped: ``(n, B)`` bool: which of its elements are taken out.

        Returns:
            The values, and -inf where an element is not admitted.
        """
        n, k, _ = value.shape
        shape = (n, self.prior.pixels)
        state = torch.full(shape, -1, dtype=torch.int8, device=value.device)
        state.scatter_(1, mask.pixel, torch.where(swapped, mask.colour, k).to(torch.int8))
        there = state.gather(1, candidates)[:, None]  # the colour taken out; k: the pixel stays
        every = torch.arange(k, device=value.device)[:, None]
        value = value.masked_fill((there == k) | (there == every), -torch.inf)
        return unless_all(value, self.tried)


def unless_all(value: Tensor, barred: Tensor) -> Tensor:
    """-inf where something is barred, unless nothing else would be left in a row."""
    rest = value.masked_fill(barred, -torch.inf)
    some = (rest > -torch.inf).flatten(1).any(1)
    return torch.where(some.view(-1, *(1,) * (value.dim() - 1)), rest, value)
