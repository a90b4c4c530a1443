"""White-box perturbations inside a norm ball, for adversarial training and for checking its result.

These are tools of the zoo's recipes, on whole batches and with gradients; the attacks that brusle
is about are in `brusle.attacks`. Radii are for images in [0, 1].
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Threat = Literal["linf", "l2", "l1", "l0"]


def training_example(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    threat: Threat,
    radius: float,
    steps: int,
    generator: torch.Generator,
) -> Tensor:
    """Perturbed images to train on.

    * ``linf``: one step from noise, N-FGSM (de Jorge et al., NeurIPS 2022): noise of twice the
      radius, a step of one radius, no projection. Plain FGSM training collapses to nets that only
      withstand FGSM; this does not.
    * ``l2`` and ``l1``: ``steps`` normalised gradient steps from a random start. For ``l1``
      steps are Euclidean and then projected to the l1 ball (Jiang et al., CVPR 2023), which
      avoids the collapse that sparse single steps bring.
    * ``l0``: of several candidates with ``radius`` changed pixels, the one with the largest loss:
      one chosen by gradient, ``steps`` at random, all in corner colours. With the first alone a
      net learns to mislead gradients: it withstood l0 PGD on 72 % of the images with 24 pixels,
      and BruSLe, which needs no gradient, on 37 % with 8.
    """
    if threat == "linf":
        noise = (torch.rand(x.shape, generator=generator) * 2 - 1) * 2 * radius
        return (x + noise + radius * _gradient(model, x + noise, y).sign()).clamp(0, 1)
    if threat == "l0":
        pixels = int(radius)
        rivals = [random_pixels(x, pixels, generator) for _ in range(steps)]
        rivals.append(greedy_pixels(model, x, rivals[0], y, pixels, 0.3, generator))
        with torch.no_grad():
            losses = torch.stack([F.cross_entropy(model(r), y, reduction="none") for r in rivals])
        worst = losses.argmax(0)
        return torch.stack(rivals)[worst, torch.arange(len(x))]
    start = x + project(torch.randn(x.shape, generator=generator), threat, radius)
    return _climb(model, x, start.clamp(0, 1), y, threat, radius, steps, 1.5 * radius / steps)


def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    threat: Threat,
    radius: float,
    steps: int,
    generator: torch.Generator,
) -> Tensor:
    """Projected gradient descent on the cross-entropy, one random start; the strongest iterate.

    For ``l1`` steps go along few coordinates, fewer and fewer of them (as SLIDE, Tramer and Boneh,
    NeurIPS 2019, and APGD, Croce and Hein, ICML 2021, do): the best l1 perturbations are sparse,
    and Euclidean steps hardly get there. For ``l0`` each step re-chooses all pixels by gradient
    from the iterate before.
    """
    best, worst = x.clone(), torch.full((len(x),), -torch.inf)
    if threat == "l0":
        current = random_pixels(x, int(radius), generator)
    elif threat == "linf":
        current = (x + (torch.rand(x.shape, generator=generator) * 2 - 1) * radius).clamp(0, 1)
    else:
        noise = project(torch.randn(x.shape, generator=generator), threat, radius)
        current = (x + noise).clamp(0, 1)
    for step in range(steps + 1):
        with torch.no_grad():
            loss = _margin(model(current), y)
        better = loss > worst
        worst = torch.where(better, loss, worst)
        best[better] = current[better]
        if step == steps:
            break
        if threat == "l0":
            current = greedy_pixels(model, x, current, y, int(radius), 0.7, generator)
        elif threat == "linf":
            moved = current + 2.5 * radius / steps * _gradient(model, current, y).sign()
            current = (x + (moved - x).clamp(-radius, radius)).clamp(0, 1)
        elif threat == "l2":
            size = max(2.5 / steps, 0.1) * radius * (1 - step / steps)
            current = _climb(model, x, current, y, threat, radius, 1, size)
        else:
            current = _sparse_step(model, x, current, y, radius, step / steps)
    return best


def project(delta: Tensor, threat: Threat, radius: float) -> Tensor:
    """The nearest perturbation inside the ``l2`` or ``l1`` ball of ``radius``."""
    flat = delta.flatten(1)
    if threat == "l2":
        scale = (radius / flat.norm(dim=1).clamp_min(1e-12)).clamp_max(1)
        scaled: Tensor = flat * scale[:, None]
        return scaled.view_as(delta)
    # Duchi et al., ICML 2008: shrink all magnitudes by the one amount that meets the radius
    sizes = flat.abs()
    ordered, _ = sizes.sort(dim=1, descending=True)
    excess = ordered.cumsum(1) - radius
    ranks = torch.arange(1, flat.shape[1] + 1)
    count = (ordered * ranks > excess).sum(1, keepdim=True).clamp_min(1)
    shrink = (excess.gather(1, count - 1) / count).clamp_min(0)
    shrunk: Tensor = flat.sign() * (sizes - shrink).clamp_min(0)
    return shrunk.view_as(delta)


def random_pixels(x: Tensor, pixels: int, generator: torch.Generator) -> Tensor:
    """``x`` with so many random pixels in random corner colours."""
    n, c, h, w = x.shape
    order = torch.rand(n, h * w, generator=generator).topk(pixels).indices
    colours = (torch.rand(n, c, pixels, generator=generator) < 0.5).float()
    return x.flatten(2).scatter(2, order[:, None].expand(-1, c, -1), colours).view_as(x)


def greedy_pixels(
    model: nn.Module,
    x: Tensor,
    at: Tensor,
    y: Tensor,
    pixels: int,
    share: float,
    generator: torch.Generator,
) -> Tensor:
    """The ``pixels`` changes of ``x`` that promise most by the gradient at ``at``.

    Only a random ``share`` of the pixels may change, so that repeated calls differ.
    """
    n, c, h, w = x.shape
    gradient, flat = _gradient(model, at, y).flatten(2), x.flatten(2)
    corner = (gradient > 0).float()
    gain = (gradient * (corner - flat)).sum(1)
    closed = torch.rand(n, h * w, generator=generator) >= share
    chosen = gain.masked_fill(closed, -torch.inf).topk(pixels).indices
    index = chosen[:, None].expand(-1, c, -1)
    return flat.scatter(2, index, corner.gather(2, index)).view(n, c, h, w)


def _climb(
    model: nn.Module,
    x: Tensor,
    current: Tensor,
    y: Tensor,
    threat: Threat,
    radius: float,
    steps: int,
    size: float,
) -> Tensor:
    """Gradient steps of Euclidean length ``size`` (l1: a tenth), projected to ball and box."""
    # an l1 ball of radius r holds Euclidean balls that are far smaller
    length = size if threat == "l2" else size / 10
    for _ in range(steps):
        gradient = _gradient(model, current, y)
        unit = gradient / gradient.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, 1, 1, 1)
        current = (x + project(current + length * unit - x, threat, radius)).clamp(0, 1)
    return current


def _sparse_step(
    model: nn.Module, x: Tensor, current: Tensor, y: Tensor, radius: float, progress: float
) -> Tensor:
    """A step in the l1 ball along the coordinates with the largest gradients."""
    gradient = _gradient(model, current, y).flatten(1)
    flat = current.flatten(1)
    stuck = ((gradient > 0) & (flat >= 1)) | ((gradient < 0) & (flat <= 0))
    gradient = gradient.masked_fill(stuck, 0)
    count = max(1, round(gradient.shape[1] * 10 ** (-1 - 2 * progress)))
    index = gradient.abs().topk(count).indices
    sign = gradient.gather(1, index).sign()
    step = torch.zeros_like(gradient).scatter(1, index, sign * radius * (1 - progress) / count)
    return (x + project(current + step.view_as(x) - x, "l1", radius)).clamp(0, 1)


def _gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        loss = F.cross_entropy(model(x), y, reduction="sum")
    return torch.autograd.grad(loss, x)[0]


def _margin(logits: Tensor, y: Tensor) -> Tensor:
    others = logits.scatter(1, y[:, None], -torch.inf)
    return others.amax(1) - logits.gather(1, y[:, None])[:, 0]
