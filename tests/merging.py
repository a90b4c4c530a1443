"""A layer with a switch of its own, as LoRA's layers have."""

import torch
from torch import nn


class Merging(nn.Module):
    """Put before a layer's class: its weight is one higher in evaluation than in training."""

    merged = False
    weight: nn.Parameter

    def train(self, mode: bool = True) -> "Merging":
        if mode == self.merged:
            with torch.no_grad():
                self.weight += -1.0 if mode else 1.0
            self.merged = not mode
        return super().train(mode)
