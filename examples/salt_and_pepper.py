"""Salt and pepper: an attack that knows nothing of brusle, and the lines that give it a name."""

from __future__ import annotations

from typing import Any

import torch

from brusle.attacks import External


def salt_and_pepper(model: Any, x: Any, y: Any, targets: Any, grain: int = 4) -> Any:
    """Black and white noise on ever fewer pixels of ``x``, which is one image."""
    _, _, h, w = x.shape
    goal = y if targets is None else targets
    found, pixels = x, h * w
    while pixels > 0:
        noisy = x.repeat(grain, 1, 1, 1)
        for image in noisy:
            where = torch.randperm(h * w)[:pixels]
            image.flatten(1)[:, where] = torch.randint(2, (len(where),)).float()
        fooled = (model(noisy).argmax(1) == goal) == (targets is not None)
        if fooled.any():
            found = noisy[fooled][:1]
            pixels = int((found != x).any(1).sum()) * 3 // 4
    return found


def make(pixels: int, queries: int, grain: int = 4) -> External:
    """What the entry point names: options are parameters, and the budget comes with the command."""
    name, options = "salt-and-pepper", {"grain": grain}
    return External(salt_and_pepper, pixels, queries, name=name, options=options, needs="labels")
