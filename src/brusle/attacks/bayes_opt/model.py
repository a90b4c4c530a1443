"""The model of BayesOpt: a Gaussian process that predicts the loss of edits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

FIT_STEPS = 6
# the model's parameters as logarithms: at first, least, most
SCALES = {"positions": (0.0, -3.0, 3.0), "colours": (0.5, -4.0, 3.0), "noise": (-5.0, -9.0, 0.0)}


def quantiles(loss: Tensor) -> Tensor:
    """Ranks of losses as quantiles of the normal distribution; equal losses have equal ranks."""
    rank = (loss[:, None] >= loss).sum(1)
    normal: Tensor = torch.special.ndtri(rank.double() / (len(loss) + 1))
    return normal


def distances(index: Tensor, colour: Tensor, other: Tensor, paint: Tensor) -> tuple[Tensor, Tensor]:
    """Share of positions that differ, and root mean square difference of colours."""
    moved = (index[:, None] != other).double().mean(2)
    apart = torch.cdist(colour.flatten(1), paint.flatten(1)) / math.sqrt(colour[0].numel())
    return moved, apart


def kernel(moved: Tensor, apart: Tensor, scales: Tensor) -> Tensor:
    """The mixture of an overlap and a Matern-5/2 kernel, 1 for equal candidates."""
    overlap = torch.exp(-moved / scales[0].exp())
    r = math.sqrt(5) * apart / scales[1].exp()
    matern = (1 + r + r.square() / 3) * torch.exp(-r)
    return 0.25 * (overlap + matern) + 0.5 * overlap * matern


def first_scales() -> Tensor:
    """The model's parameters before anything is known."""
    return torch.tensor([first for first, _, _ in SCALES.values()], dtype=torch.float64)


class Model:
    """A Gaussian process over edits, with the mean 0 and a variance that fits the data best.

    Args:
        index: ``(t, k)`` positions.
        colour: ``(t, k, c)`` float64.
        y: ``(t,)`` standardised losses.
        scales: ``(3,)`` logarithms of the length scales of positions and colours, and of the
            noise as a share of the variance.
        fit: whether to fit the scales first.
    """

    def __init__(
        self, index: Tensor, colour: Tensor, y: Tensor, scales: Tensor, fit: bool = False
    ) -> None:
        self.index, self.colour, self.y = index, colour, y
        self._apart = distances(index, colour, index, colour)
        self._eye = torch.eye(len(y), dtype=torch.float64)
        self.scales = self._fit(scales) if fit else scales
        noise = self.scales[2].exp()
        self.root = torch.linalg.cholesky(kernel(*self._apart, self.scales) + noise * self._eye)
        self.weight = torch.cholesky_solve(y[:, None], self.root)[:, 0]
        self.variance = (y * self.weight).mean().clamp_min(1e-9)
        self.fitted = y - noise * self.weight  # the mean at the data

    def predict(self, index: Tensor, colour: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the loss of ``m`` candidates, without noise."""
        k = kernel(*distances(index, colour, self.index, self.colour), self.scales)
        whitened = torch.linalg.solve_triangular(self.root, k.T, upper=False)
        left = (1 - whitened.square().sum(0)).clamp_min(1e-12)
        return k @ self.weight, (self.variance * left).sqrt()

    def _fit(self, scales: Tensor) -> Tensor:
        """Maximise the marginal likelihood."""
        from botorch.optim.core import scipy_minimize

        parts = {name: scales[i].clone().requires_grad_() for i, name in enumerate(SCALES)}

        def closure() -> tuple[Tensor, list[Tensor]]:
            with torch.enable_grad():
                now = torch.stack(list(parts.values()))
                root = torch.linalg.cholesky(kernel(*self._apart, now) + now[2].exp() * self._eye)
                whitened = torch.linalg.solve_triangular(root, self.y[:, None], upper=False)
                variance = whitened.square().mean().clamp_min(1e-9)
                cost = root.diagonal().log().sum() + 0.5 * len(self.y) * variance.log()
                return cost, list(torch.autograd.grad(cost, list(parts.values())))

        bounds: dict[str, tuple[float | None, float | None]] = {
            name: (low, high) for name, (_, low, high) in SCALES.items()
        }
        scipy_minimize(closure, parts, bounds, options={"maxiter": FIT_STEPS})
        return torch.stack([part.detach() for part in parts.values()])


def expected_improvement(mean: Tensor, deviation: Tensor, best: Tensor) -> Tensor:
    """By how much a normal variable is expected to fall below ``best``."""
    u = (best - mean) / deviation
    density = torch.exp(-0.5 * u.square()) / math.sqrt(2 * math.pi)
    below: Tensor = torch.special.ndtr(u)
    return deviation * (density + u * below)
