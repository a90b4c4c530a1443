"""What PixelBandit concludes from its observations: the posterior of a Gaussian process.

With K the covariance of the observations, noise included, and y the observations as numbers, the
mean of whatever has covariance k with them is

    k K^-1 y

and a draw f from the prior becomes one from the posterior if it is corrected by what it gets wrong
about them (Matheron's rule):

    f + k K^-1 (y - f at the observations)

So K^-1 is all that is needed. It is updated in place when one observation replaces another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from brusle.rows import Rows

_DARING = 0.6  # how far draws stray from the mean, in standard deviations
_REFRESH = 64  # rounds between fresh inverses, once old observations are replaced


class Weights(NamedTuple):
    """Weights of the observations, by which they speak of whatever is alike."""

    draw: Tensor  # (n, slots): K^-1 (y - scale f)
    scale: Tensor  # (n, 1): the standard deviation of the draw f
    mean: Tensor  # (n, slots): K^-1 y


@dataclass
class Posterior(Rows):
    """Of observations in slots (see `memory`), some of them empty."""

    known: Tensor  # (n, slots): 1 where there is an observation, 0 elsewhere
    covariance: Tensor  # (n, slots, slots): K; 0 where one of the two is missing
    inverse: Tensor  # (n, slots, slots): of what is known, 0 elsewhere

    @classmethod
    def empty(cls, n: int, slots: int, device: torch.device) -> Posterior:
        """Nothing is observed yet."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(n, *shape, dtype=torch.float64, device=device)

        return cls(zeros(slots), zeros(slots, slots), zeros(slots, slots))

    def mean(self, y: Tensor) -> Tensor:
        """``(n, slots)``: K^-1 y."""
        return (self.inverse @ y[:, :, None])[:, :, 0]

    def weights(self, y: Tensor, said: Tensor) -> Weights:
        """Weights that turn a draw from the prior into one from the posterior.

        How large effects are is estimated here: such that the observations are as likely as can be.

        Args:
            y: ``(n, slots)`` observations, 0 where there are none.
            said: ``(n, slots)``: what the draw, with a standard deviation of 1, says of them.
        """
        weight = self.inverse @ torch.stack([y, said.double() * self.known], 2)
        mean = weight[:, :, 0]
        count = self.known.sum(1).clamp_min(1)
        scale = _DARING * ((y * mean).sum(1) / count).clamp_min(1e-12).sqrt()[:, None]
        return Weights((mean - scale * weight[:, :, 1]).float(), scale.float(), mean.float())

    def learn(self, step: Tensor, there: Tensor, alike: Tensor, noise: Tensor) -> None:
        """An observation takes the slot ``step`` modulo their number; what was in it is forgotten.

        Args:
            step: ``(n,)``.
            there: ``(n,)``: 1, or 0 if the slot is to be empty.
            alike: ``(n, slots)`` covariance with all observations, and with itself but for noise.
            noise: ``(n,)`` its variance.
        """
        slots = self.known.shape[1]
        if int(step.max()) >= slots:
            self._take_out(step % slots)
        self._put_in(step % slots, there, alike, noise)
        # replacing observations adds up rounding errors, so now and then the inverse is made anew
        stale = (step > slots) & (step % _REFRESH == 0)
        if bool(stale.any()):
            self._invert(stale.nonzero()[:, 0])

    def revise(self, rows: Tensor, covariance: Tensor) -> None:
        """Let the observations of ``rows`` have another covariance, ``(m, slots, slots)``."""
        self.covariance[rows] = covariance
        self._invert(rows)

    def _take_out(self, slot: Tensor) -> None:
        """The inverse without the observations in ``slot``."""
        rows = torch.arange(len(slot), device=slot.device)
        column = self.inverse[rows, slot]
        own = column[rows, slot][:, None]
        factor = torch.where(own > 0, -column / own, 0.0)
        self.inverse.baddbmm_(column[:, :, None], factor[:, None])
        self.inverse[rows, slot] = 0.0
        self.inverse[rows, :, slot] = 0.0

    def _put_in(self, slot: Tensor, there: Tensor, alike: Tensor, noise: Tensor) -> None:
        """The inverse with an observation more, by the Schur complement of its variance."""
        rows = torch.arange(len(slot), device=slot.device)
        self.known[rows, slot] = there
        alike = alike.double() * self.known * there[:, None]
        alike[rows, slot] += noise
        self.covariance[rows, slot] = alike
        self.covariance[rows, :, slot] = alike
        own = alike[rows, slot].clone()
        alike[rows, slot] = 0.0
        v = self.mean(alike)
        left = (own - (alike * v).sum(1)).clamp_min(noise / 2)
        v[rows, slot] = -there
        self.inverse.baddbmm_(v[:, :, None], (v / left[:, None])[:, None])

    def _invert(self, rows: Tensor) -> None:
        """Make the inverse anew."""
        known = self.known[rows]
        whole = self.covariance[rows] + torch.diag_embed(1 - known)  # an empty slot stays apart
        self.inverse[rows] = torch.linalg.inv(whole) * known[:, :, None] * known[:, None]


def log_likelihood(y: Tensor, covariance: Tensor, known: Tensor) -> Tensor:
    """``(n,)``: of observations, up to a constant, if effects are as large as is likeliest.

    Args:
        y: ``(n, slots)``.
        covariance: ``(n, slots, slots)``; an empty slot stays apart, with variance 1.
        known: ``(n, slots)``.
    """
    root: Tensor = torch.linalg.cholesky(covariance)
    fit = (y * torch.cholesky_solve(y[:, :, None], root)[:, :, 0]).sum(1)
    spread = root.diagonal(dim1=1, dim2=2).log().sum(1)
    return -0.5 * known.sum(1) * fit.clamp_min(1e-12).log() - spread
