"""Batch normalisation merged into the convolution before it: the same function, fewer passes.

In evaluation mode a batch normalisation multiplies each channel by a constant and adds another. A
convolution whose output goes there and nowhere else can do both with other weights. On a CPU small
nets spend a third of their time in such passes over memory.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from brusle.victims.borrowing import versions

_PAIRS = {nn.Conv2d: nn.BatchNorm2d, nn.Conv1d: nn.BatchNorm1d, nn.Conv3d: nn.BatchNorm3d}
_TORCH_OWN = frozenset(vars(nn.Module()))


class Fused:
    """A module and its quicker twin.

    The user's module is neither changed nor called. The twin is a copy that runs the user's own
    ``forward``; only layers are exchanged. Where that could make a difference (the forward pass
    cannot be traced, keeps a state, or has hooks) the twin is the module itself.

    Args:
        module: in evaluation mode.
        channels_last: memory layout of the twin's weights.

    Attributes:
        quick: the twin.
    """

    def __init__(self, module: nn.Module, channels_last: bool = True) -> None:
        self._module = module
        self._state = versions(module)
        self.quick = _fuse(module, channels_last)

    def is_current(self, module: nn.Module) -> bool:
        """Whether this is the twin of ``module`` and of the weights that it has now."""
        if module is not self._module:
            return False
        return self.quick is module or self._state == versions(module)


def _fuse(module: nn.Module, channels_last: bool) -> nn.Module:
    if not any(isinstance(part, tuple(_PAIRS.values())) for part in module.modules()):
        return module
    if any(part._forward_hooks or part._forward_pre_hooks for part in module.modules()):
        return module
    try:
        twin = copy.deepcopy(module)
        before = _attributes(twin)
        pairs = _pairs(twin)
    except Exception:  # a user's forward pass may raise anything when it is traced
        return module
    if before != _attributes(twin):
        return module
    for convolution, normalisation in pairs:
        layers: tuple[Any, Any] = (
            twin.get_submodule(convolution),
            twin.get_submodule(normalisation),
        )
        merged = fuse_conv_bn_eval(*layers)
        _replace(twin, convolution, merged)
        _replace(twin, normalisation, nn.Identity())
    if channels_last:
        twin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return twin if pairs else module


def _pairs(module: nn.Module) -> list[tuple[str, str]]:
    """Paths of the convolutions and normalisations that can be merged."""
    graph = fx.symbolic_trace(module).graph
    layers = dict(module.named_modules())
    calls = [node for node in graph.nodes if node.op == "call_module"]
    used = [node.target for node in calls]
    pairs = []
    for node in calls:
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or source.op != "call_module":
            continue
        convolution, normalisation = layers[str(source.target)], layers[str(node.target)]
        fits = type(normalisation) is _PAIRS.get(type(convolution))
        once = used.count(source.target) == 1 and used.count(node.target) == 1
        if fits and once and len(source.users) == 1 and _has_statistics(normalisation):
            pairs.append((str(source.target), str(node.target)))
    return pairs


def _has_statistics(normalisation: nn.Module) -> bool:
    return normalisation.running_mean is not None and not normalisation.training


def _attributes(module: nn.Module) -> list[dict[str, Any]]:
    """What modules remember beside layers and weights: counters, caches, last inputs."""
    return [
        {k: repr(v) for k, v in vars(part).items() if k not in _TORCH_OWN}
        for part in module.modules()
    ]


def _replace(module: nn.Module, path: str, layer: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(module.get_submodule(parent), name, layer)
