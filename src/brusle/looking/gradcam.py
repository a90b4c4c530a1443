"""GradCAM: which places of a convolution's output speak for a class.

Selvaraju et al., "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based
Localization", ICCV 2017, as Captum computes it. With features A_k of a layer and the logit s of the
class, a channel weighs as much as its mean slope, and the map is

    relu(sum_k w_k A_k),    w_k = mean over places of ds / dA_k
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from brusle.errors import InputError
from brusle.looking.nets import Net, batches, enlarged, with_gradients
from brusle.packages import need


def gradcam(
    net: Net, images: Tensor, labels: Tensor, layer: str, batch_size: int
) -> tuple[Tensor, str, tuple[int, int]]:
    """``(n, h, w)`` maps, the layer's whole name, and the rows and columns of its output.

    Args:
        net: the net.
        images: ``(n, c, h, w)``.
        labels: ``(n,)`` the classes that are explained.
        layer: name of the layer whose output is looked at.
        batch_size: most images at once.
    """
    captum = need("captum.attr", "GradCAM")
    name, part = net.layer(layer)
    _require_places(net, name, part, images[:1])
    explainer = captum.LayerGradCam(net.logits, part)
    parts = batches(len(images), batch_size)
    cells = torch.cat([_cells(explainer, net, images[some], labels[some]) for some in parts])
    rows, columns = cells.shape[1:]
    height, width = images.shape[2:]
    return enlarged(cells, (height, width)), name, (rows, columns)


def _cells(explainer: Any, net: Net, images: Tensor, labels: Tensor) -> Tensor:
    """``(n, rows, columns)``: a number for each place."""
    with with_gradients():
        # a copy: a tensor of the caller's inference mode cannot take part
        leaf, targets = net.leaf(images), labels.to(net.victim.device, copy=True)
        found: Tensor = explainer.attribute(leaf, target=targets, relu_attributions=True)
    return found[:, 0].detach()


def _require_places(net: Net, name: str, layer: nn.Module, image: Tensor) -> None:
    """Raise if the output of ``layer`` has no places, or if it has no part in the answer."""
    outputs: list[Any] = []

    def see(*seen: Any) -> None:
        outputs.append(seen[-1])

    with with_gradients(), net.watched(lambda part: part is layer, see):
        score = net.logits(net.leaf(image))[0].sum()
    if not outputs:
        raise InputError(f"the layer {name!r} is not used when {net.victim.name} answers")
    last = outputs[-1]  # the one that Captum takes
    shape = tuple(last.shape) if isinstance(last, Tensor) else type(last).__name__
    if not isinstance(last, Tensor) or last.dim() != 4 or last.shape[2] * last.shape[3] < 2:
        raise InputError(
            f"the layer {name!r} gives {shape}, which is no (n, channels, rows, columns) with "
            f"more than one place: name a convolution"
        )
    if not last.requires_grad or torch.autograd.grad(score, last, allow_unused=True)[0] is None:
        raise InputError(f"the answer of {net.victim.name} does not depend on the layer {name!r}")
