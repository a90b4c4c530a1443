"""The normalisation that most nets want before they see an image."""

from __future__ import annotations

from torch import Tensor, fx

from brusle.errors import InputError


@fx.wrap
def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """``(images - mean) / std`` with ``(1, c, 1, 1)`` constants, of each channel or one for all.

    Arithmetic alone would stretch grey images to colour ones, and nobody would be told. Call it as
    ``normalisation.normalise``: tracers, to which a shape is no number, look for it there.
    """
    if mean.shape[1] not in (1, images.shape[1]):
        raise InputError(
            f"images have {images.shape[1]} channel(s), but the model normalises {mean.shape[1]}: "
            f"give images with {mean.shape[1]} channels"
        )
    return (images - mean) / std
