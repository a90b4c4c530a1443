"""A short hash of everything that a module holds, so that results of other weights are not mixed.

Plain tensors are hashed by name and bytes. Modules hold other things, too: quantised and sparse
tensors, packed parameters, and whatever ``get_extra_state`` returns. These are taken apart until
only plain values are left. What cannot be taken apart makes the hash end with a question mark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brusle.errors import VictimError

UNSURE = "?"
_BY_TEXT = (type(None), bool, int, torch.dtype, torch.device, torch.layout, torch.qscheme)
_COMPRESSED = {
    torch.sparse_csr: (Tensor.crow_indices, Tensor.col_indices),
    torch.sparse_bsr: (Tensor.crow_indices, Tensor.col_indices),
    torch.sparse_csc: (Tensor.ccol_indices, Tensor.row_indices),
    torch.sparse_bsc: (Tensor.ccol_indices, Tensor.row_indices),
}


def fingerprint(victim: Any) -> str:
    """A hash of the weights of a victim, behind its defences; empty if it cannot be told.

    Victims that are no torch modules may say it themselves, in an attribute ``fingerprint``.
    """
    while hasattr(victim, "victim"):
        victim = victim.victim
    module = getattr(victim, "module", None)
    if isinstance(module, nn.Module):
        return digest(module)
    return str(getattr(victim, "fingerprint", ""))


def notes_on_weights(weights: str) -> list[str]:
    """What a reader should know of a `fingerprint`."""
    if not weights.endswith(UNSURE):
        return []
    return [
        "a part of the victim's state cannot be compared (it holds something that cannot be taken "
        "apart, or does not tell its state): if only that changes, results of both are mixed"
    ]


def digest(module: nn.Module) -> str:
    """A short hash of all weights, statistics and other state of a net.

    Returns:
        16 digits; with a question mark behind them if a part of the state cannot be compared.

    Raises:
        VictimError: a weight has no values, as before the first call of a lazy module.
    """
    state = _State()
    for name, value in sorted(
        _reported_state(module, state).items(), key=lambda item: str(item[0])
    ):
        state.whole.update(str(name).encode())
        if isinstance(value, Tensor):
            _check_values(value, str(name))
        if isinstance(value, Tensor) and _is_plain(value):
            state.whole.update(_bytes(value))
        else:
            state.add(value)
    return state.whole.hexdigest()[:16] + ("" if state.exact else UNSURE)


class _State:
    """What is hashed so far.

    Attributes:
        whole: the hash.
        exact: everything in it was taken apart completely.
    """

    def __init__(self) -> None:
        self.whole = hashlib.sha256()
        self.exact = True
        self._inside: list[int] = []  # what is being taken apart, to notice rings

    def add(self, value: Any) -> None:
        """Hash any value."""
        if id(value) in self._inside:
            self._write("ring", str(self._inside.index(id(value))))
            return
        self._inside.append(id(value))
        try:
            self._take_apart(value)
        except Exception:  # a user's object may raise anything when it is looked into
            self._give_up(value)
        finally:
            self._inside.pop()

    def _take_apart(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self._add_tensor(value)
        elif isinstance(value, _BY_TEXT):
            self._write(type(value).__name__, str(value))
        elif isinstance(value, float | complex | str):
            self._write(type(value).__name__, repr(value))
        elif isinstance(value, bytes | bytearray):
            self._write(type(value).__name__, bytes(value))
        elif isinstance(value, Enum | type | FunctionType | BuiltinFunctionType):
            self._add_name(value)
        elif isinstance(value, np.ndarray | np.generic):
            self._add_array(value)
        elif type(value) in (list, tuple):
            self._add_all(type(value).__name__, value)
        elif type(value) in (set, frozenset):
            self._add_all(type(value).__name__, sorted(value, key=_alone))
        elif type(value) is dict:
            keys = sorted(value, key=_alone)
            self._add_all("dict", [part for key in keys for part in (key, value[key])])
        else:
            self._add_object(value)

    def _add_tensor(self, value: Tensor) -> None:
        kind = [value.dtype, value.layout, list(value.shape) if not value.is_nested else None]
        if _is_plain(value):
            self._add_all("tensor", [*kind, _bytes(value)])
        else:
            self._add_all("tensor", [*kind, *_parts(value)])

    def _add_array(self, value: Any) -> None:
        array = np.asarray(value)
        plain = array.tolist() if array.dtype.hasobject else array.tobytes()
        self._add_all("array", [str(array.dtype), list(array.shape), plain])

    def _add_name(self, value: Any) -> None:
        """Code is known by its name, as that of the module itself; what it encloses is unknown."""
        if isinstance(value, Enum):
            self._write("name", repr(value))
            return
        self._write("name", f"{value.__module__}.{value.__qualname__}")
        self.exact &= not getattr(value, "__closure__", None)

    def _add_object(self, value: Any) -> None:
        """Any other object, by what it would be pickled as."""
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):
            self._write("global", f"{type(value).__module__}.{reduced}")
            return
        make, arguments, *rest = reduced
        state, items, pairs = (*rest, None, None, None)[:3]
        self._add_all("object", [make, arguments, state, list(items or ()), list(pairs or ())])

    def _add_all(self, kind: str, values: Iterable[Any]) -> None:
        parts = list(values)
        self._write(kind, str(len(parts)))
        for one in parts:
            self.add(one)

    def _give_up(self, value: Any) -> None:
        self.exact = False
        self._write("unknown", f"{type(value).__module__}.{type(value).__qualname__}")

    def _write(self, kind: str, text: str | bytes) -> None:
        """With the length in front, so that no two values run into each other."""
        raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
        self.whole.update(f"<{kind} {len(raw)}>".encode() + raw)


def _reported_state(module: nn.Module, state: _State) -> Mapping[Any, Any]:
    """What a module says of its state; if it says nothing, its parameters and buffers."""
    try:
        told = module.state_dict()
        if isinstance(told, Mapping):
            return told | _script_objects(module)
    except Exception:  # a user's method may raise anything
        pass
    state.exact = False
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _script_objects(module: nn.Module) -> dict[str, Any]:
    """Packed parameters in TorchScript, which its state dict leaves out."""
    found: dict[str, Any] = {}
    for path, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            for name in part._concrete_type.get_attributes():
                value = getattr(part, name)
                if isinstance(value, torch.ScriptObject):
                    found[f"{path}.{name}"] = value
    return found


def _check_values(value: Tensor, name: str) -> None:
    if nn.parameter.is_lazy(value) or value.is_meta:
        raise VictimError(
            f"{name} has no values yet: call the module once on an image, or load its weights"
        )


def _is_plain(value: Tensor) -> bool:
    """Whether name and bytes say it all."""
    whole = not (value.is_quantized or value.is_nested or hasattr(value, "__tensor_flatten__"))
    return whole and value.layout is torch.strided


def _bytes(value: Tensor) -> bytes:
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    raw: bytes = plain.view(torch.uint8).numpy().tobytes()
    return raw


def _parts(value: Any) -> list[Any]:
    """What a tensor that is not plain consists of."""
    if hasattr(value, "full_tensor"):  # shards on several machines
        return [value.full_tensor()]
    if hasattr(value, "__tensor_flatten__"):
        names, context = value.__tensor_flatten__()
        return [context, *(getattr(value, name) for name in names)]
    if value.is_nested:
        return list(value.unbind())
    if value.is_quantized:
        return [value.int_repr(), value.qscheme(), *_scales(value)]
    if value.layout is torch.sparse_coo:
        value = value.coalesce()
        return [value.indices(), value.values()]
    if value.layout in _COMPRESSED:
        return [*(index(value) for index in _COMPRESSED[value.layout]), value.values()]
    return [value.to_dense()]


def _scales(value: Tensor) -> list[Any]:
    if value.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return [value.q_scale(), value.q_zero_point()]
    channels = (value.q_per_channel_scales(), value.q_per_channel_zero_points())
    return [*channels, value.q_per_channel_axis()]


def _alone(value: Any) -> str:
    """A hash of one value, to sort by: sets have no order, and that of keys says nothing."""
    state = _State()
    state.add(value)
    return state.whole.hexdigest()
