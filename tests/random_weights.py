"""Nets whose weights make a difference."""

import torch
from torch import nn


def randomise(module: nn.Module, seed: int = 0) -> nn.Module:
    """Weights that make every layer matter, batch statistics included."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if name.endswith("running_var"):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
            elif tensor.is_floating_point():
                spread = max(1, tensor[0].numel()) ** -0.5 if tensor.dim() > 1 else 0.3
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * spread)
                if tensor.dim() == 1 and name.endswith("weight"):
                    tensor.add_(1)
    return module.eval()
