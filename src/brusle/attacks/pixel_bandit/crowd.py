"""The crowd: pixels of a mask that stand together share what they do.

    crowd(pixel, mask) = sum over the mask of exp(-distance / reach), itself included

An element does w / crowd. Two neighbours do little more than one of them; without this, a sum of
effects would be largest with all pixels on the best spot.
"""

from __future__ import annotations

import torch
from torch import Tensor

from brusle.attacks.pixel_bandit.prior import Prior


def crowd(prior: Prior, pixel: Tensor) -> Tensor:
    """``(n, B)``: how many pixels stand together with each, itself included."""
    alone = torch.ones_like(pixel, dtype=torch.float32)[:, None]
    return prior.at(prior.nearby(alone, pixel), pixel)[:, 0]


def without(prior: Prior, pixel: Tensor, effect: Tensor) -> Tensor:
    """``(n, B)``: what a mask would lose with each of its elements.

    Its own part of the sum, less what the others of its crowd gain when it is gone. The gain of one
    is w / (crowd - nearness) - w / crowd; its denominator is taken as crowd * max(crowd - 1, 1),
    exact for two of a kind, so that a sum over cells does.

    Args:
        prior: says what is near.
        pixel: ``(n, B)`` of the mask.
        effect: ``(n, B)`` of its elements, were each alone.
    """
    near = crowd(prior, pixel)
    part = effect / (near * (near - 1).clamp_min(1))
    seen = prior.at(prior.nearby(part[:, None], pixel), pixel)[:, 0]
    return effect / near - (seen - part)


def beside(prior: Prior, pixel: Tensor, effect: Tensor, kept: Tensor, others: Tensor) -> Tensor:
    """``(n, k, cells)``: what other elements are worth beside those of a mask that are kept.

    A share of their effect, less what the crowd that they join loses; as in `without`, one
    denominator, crowd * (crowd + 1), serves all distances.

    Args:
        prior: says what is near.
        pixel: ``(n, B)`` of the mask.
        effect: ``(n, B)`` of its elements, were each alone.
        kept: ``(n, B)`` bool: which of them are.
        others: ``(n, k, cells)`` effects of all elements, were each alone.
    """
    stays = kept.float()
    crowds = prior.nearby(stays[:, None], pixel)
    near = prior.at(crowds, pixel)[:, 0].clamp_min(1)
    part = stays * effect / (near * (near + 1))
    return others / (1 + crowds) - prior.nearby(part[:, None], pixel)
