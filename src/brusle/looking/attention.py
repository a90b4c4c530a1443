"""The attention weights of transformers, recomputed from what goes into their layers.

Fused kernels do not give their weights away. So they are computed once more, from the layer's own
input and weights; with them the layer's output is made as well, and compared with what the layer
itself has returned. What does not agree (a bias on positions, a rotation, windows) is refused: a
map that is drawn was made from the weights that the net has used.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from brusle.errors import VictimError, first_line

_SIGNATURE = inspect.signature(nn.MultiheadAttention.forward)


class UnreadableError(VictimError):
    """Attention of a kind that is not known here."""


def is_attention(layer: nn.Module) -> bool:
    """Whether ``layer`` is attention, whose weights `attention_weights` may be able to read.

    That is torch's own `nn.MultiheadAttention`, and what is built like the attention of timm or of
    the bundled transformer: one linear layer ``qkv``, and one on the way out. With ``kv`` instead,
    tokens are pooled with weights that nobody sees: not to be read, but not to be overlooked.
    """
    return isinstance(layer, nn.MultiheadAttention) or (
        any(isinstance(getattr(layer, name, None), nn.Linear) for name in ("qkv", "kv"))
        and _way_out(layer) is not None
        and isinstance(_heads(layer), int)
    )


def attention_weights(
    layer: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any
) -> Tensor:
    """``(n, heads, tokens, tokens)`` weights of one call: row looks at column; rows sum to one.

    Args:
        layer: one that `is_attention`.
        args: what it was called with.
        kwargs: likewise.
        output: what it returned.
    """
    try:
        if isinstance(layer, nn.MultiheadAttention):
            weights, again, output = *_torchs_own(layer, args, kwargs), output[0]
        else:
            weights, again = _from_qkv(layer, *args, **kwargs)
    except UnreadableError:
        raise
    except Exception as error:  # it only looks like one of these
        raise UnreadableError(
            f"{type(layer).__name__} is of a kind that is not known here ({first_line(error)})"
        ) from error
    if weights.dim() != 4 or weights.shape[2] != weights.shape[3]:
        raise UnreadableError(f"{type(layer).__name__} is no attention of tokens to each other")
    if again.shape != output.shape or not _agree(again, output):
        raise UnreadableError(
            f"{type(layer).__name__} does more than plain attention, so its weights are not known"
        )
    return weights


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """``(n, tokens, tokens)``: how much of each input token is in each token after all layers.

    Abnar and Zuidema, "Quantifying Attention Flow in Transformers", ACL 2020: half of what a layer
    hands on comes from attention and half from the shortcut beside it.

    Args:
        layers: ``(n, tokens, tokens)`` weights of each layer, the first first, mean over heads.
    """
    flow = torch.eye(layers[0].shape[1], dtype=layers[0].dtype, device=layers[0].device)
    flow = flow.expand_as(layers[0])
    for weights in layers:
        mixed = 0.5 * weights + 0.5 * torch.eye(len(weights[0]), device=weights.device)
        flow = mixed / mixed.sum(2, keepdim=True) @ flow
    return flow


def _torchs_own(
    layer: nn.MultiheadAttention, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Tensor, Tensor]:
    """Weights and output when the layer is asked for the former."""
    asked = _SIGNATURE.bind(layer, *args, **kwargs).arguments
    asked |= {"need_weights": True, "average_attn_weights": False}
    output, weights = nn.MultiheadAttention.forward(**asked)  # not a call: nobody's hooks are run
    assert weights is not None  # they were asked for
    return weights.float(), output


def _from_qkv(layer: Any, x: Tensor, *_more: Any, **_options: Any) -> tuple[Tensor, Tensor]:
    """Weights and output of a layer that makes queries, keys and values in one go.

    What else it is called with may matter, a mask for example: then its output is another.
    """
    if not hasattr(layer, "qkv"):
        raise UnreadableError(f"{type(layer).__name__} pools tokens by weights of its own")
    n, tokens, _ = x.shape
    qkv = layer.qkv(x).reshape(n, tokens, 3, _heads(layer), -1).permute(2, 0, 3, 1, 4)
    q, k, v = qkv.unbind(0)
    q, k = getattr(layer, "q_norm", nn.Identity())(q), getattr(layer, "k_norm", nn.Identity())(k)
    weights = (q @ k.transpose(2, 3) * q.shape[3] ** -0.5).float().softmax(3)
    mixed = (weights.to(v.dtype) @ v).transpose(1, 2).flatten(2)
    way_out = _way_out(layer)
    assert way_out is not None  # or it would be no attention
    return weights, way_out(mixed)


def _heads(layer: Any) -> Any:
    return getattr(layer, "num_heads", getattr(layer, "heads", None))


def _way_out(layer: Any) -> nn.Linear | None:
    """The linear layer behind the attention, as timm calls it or as ours is called."""
    found = getattr(layer, "proj", getattr(layer, "out", None))
    return found if isinstance(found, nn.Linear) else None


def _agree(ours: Tensor, theirs: Tensor) -> bool:
    """Whether two outputs are the same but for rounding."""
    digits = 1e-4 if theirs.dtype in (torch.float32, torch.float64) else 5e-2
    return bool((ours - theirs).abs().max() <= digits * theirs.abs().max())
