"""Looking into a torch module: GradCAM, and attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from brusle.errors import InputError, VictimError
from brusle.looking.anatomy import Anatomy, Tokens, look_inside
from brusle.looking.attention import is_attention
from brusle.looking.gradcam import gradcam
from brusle.looking.nets import Net
from brusle.looking.transformers import Depth, attention_maps
from brusle.problems import Problems
from brusle.victims.wrappers import TorchVictim

INSIDE = ("attention", "attention-last", "gradcam")  # the best first
_SCORES = {"logits": "logit", "probabilities": "log-probability", "confidences": "confidence"}


@dataclass(frozen=True)
class Found:
    """Maps of the inside of a net.

    Attributes:
        how: one of `INSIDE`.
        maps: ``(n, h, w)``.
        layer: name of the layer that was looked at; empty if there is no single one.
        note: a caption.
    """

    how: str
    maps: Tensor
    layer: str
    note: str


def ways_into(victim: TorchVictim) -> tuple[str, ...]:
    """Those of `INSIDE` that suit ``victim``; found out with a grey image if its size is known."""
    if victim.shape is None:
        parts = list(victim.module.modules())
        convolves = any(isinstance(part, nn.Conv2d) for part in parts)
        return _ways(any(map(is_attention, parts)), convolves)
    grey = torch.full(victim.shape, 0.5)
    try:
        with Net.of(victim, grey) as net:
            return _ways_of(look_inside(net, grey, 0))
    except (Exception, SystemExit):  # whatever somebody's net raises, it cannot be looked into
        return ()


def look_into(
    victim: TorchVictim, problems: Problems, how: str, layer: str | None, batch_size: int
) -> Found | None:
    """Maps of ``victim``; None if ``how`` is "auto" and it has neither tokens nor places.

    Args:
        victim: the victim.
        problems: the images; their labels are the classes that are explained.
        how: one of `INSIDE`, or "auto".
        layer: of GradCAM; None takes the last convolution.
        batch_size: most images at once.
    """
    with Net.of(victim, problems.images[0]) as net:
        problems.check_classes(net.classes)
        found = _found(net, problems, how, layer, batch_size)
    if found is not None and not bool(found.maps.isfinite().all()):
        raise VictimError(f"the map of {victim.name} has NaN or infinite values: no {found.how}")
    return found


def _found(
    net: Net, problems: Problems, how: str, layer: str | None, batch_size: int
) -> Found | None:
    if layer is not None:
        return _gradcam(net, problems, layer, batch_size)
    anatomy = look_inside(net, problems.images[0], int(problems.labels[0]))
    if how == "auto":
        how = next(iter(_ways_of(anatomy)), "")
    if how == "gradcam":
        return _gradcam(net, problems, _convolution(net, anatomy), batch_size)
    return _attention(net, problems, _tokens(net, anatomy), how, batch_size) if how else None


def _ways_of(anatomy: Anatomy) -> tuple[str, ...]:
    return _ways(anatomy.tokens is not None, bool(anatomy.convolution))


def _ways(attends: bool, convolves: bool) -> tuple[str, ...]:
    return tuple(way for way in INSIDE if (convolves if way == "gradcam" else attends))


def _convolution(net: Net, anatomy: Anatomy) -> str:
    if not anatomy.convolution:
        raise InputError(
            f"{net.victim.name} has no convolution with more than one place, or no gradient: name "
            f"a layer, or use how='occlusion'"
        )
    return anatomy.convolution


def _tokens(net: Net, anatomy: Anatomy) -> Tokens:
    if anatomy.tokens is None:
        other = "gradcam" if anatomy.convolution else "occlusion"
        raise InputError(
            f"the attention of {net.victim.name} cannot be read ({anatomy.why_no_tokens}): use "
            f"how={other!r}"
        )
    return anatomy.tokens


def _gradcam(net: Net, problems: Problems, layer: str, batch_size: int) -> Found:
    maps, name, (rows, columns) = gradcam(net, problems.images, problems.labels, layer, batch_size)
    score = _SCORES[net.victim.output]
    note = f"GradCAM of the class's {score} at {name} ({rows} x {columns} places)"
    return Found("gradcam", maps, name, note)


def _attention(net: Net, problems: Problems, tokens: Tokens, how: str, batch_size: int) -> Found:
    depth: Depth = "last" if how == "attention-last" else "all"
    maps = attention_maps(net, tokens, problems.images, depth, batch_size)
    layers, (rows, columns) = len(tokens.layers), tokens.grid
    name = tokens.layers[-1] if depth == "last" else ""
    what = f"attention at {name}" if depth == "last" else f"attention rollout, {layers} layers"
    note = f"{what} ({rows} x {columns} patches), the same for all classes"
    return Found(how, maps, name, note)
