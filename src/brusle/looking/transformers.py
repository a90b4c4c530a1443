"""Maps of a transformer's attention: through all layers, or in the last one."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from brusle.looking.anatomy import Tokens
from brusle.looking.attention import attention_weights, is_attention, rollout
from brusle.looking.nets import Net, batches, enlarged

Depth = Literal["all", "last"]


def attention_maps(
    net: Net, tokens: Tokens, images: Tensor, depth: Depth, batch_size: int
) -> Tensor:
    """``(n, h, w)``: the share of each patch in what the classifier reads.

    Shares of the patches sum to one together with those of the tokens in front of them, which are
    not drawn. Between the centres of patches, the map is bilinear.

    Args:
        net: the net.
        tokens: what its tokens are.
        images: ``(n, c, h, w)``.
        depth: rollout through ``"all"`` layers, or the weights of the ``"last"`` one.
        batch_size: most images at once.
    """
    parts = [_shares(net, images[some], depth) for some in batches(len(images), batch_size)]
    rows = torch.cat([shares[:, tokens.read].mean(1) for shares in parts])
    cells = rows[:, tokens.before :].reshape(-1, *tokens.grid)
    height, width = images.shape[2:]
    return enlarged(cells, (height, width))


def _shares(net: Net, images: Tensor, depth: Depth) -> Tensor:
    """``(n, tokens, tokens)``: row looks at column, mean over heads."""
    layers = layer_weights(net, images)
    return layers[-1] if depth == "last" else rollout(layers)


def layer_weights(net: Net, images: Tensor) -> list[Tensor]:
    """``(n, tokens, tokens)`` for each attention layer, the first first: mean over heads."""
    layers: list[Tensor] = []

    def see(name: str, layer: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        layers.append(attention_weights(layer, args, kwargs, output).mean(1).cpu())

    # not in the inference mode of a caller: its kernels round otherwise
    with torch.inference_mode(False), torch.no_grad(), net.watched(is_attention, see):
        net.logits(net.leaf(images))
    return layers
