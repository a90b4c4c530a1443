"""Weights from files: what a file is, reading it without running code, fitting it to a net."""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from brusle.environment import environment
from brusle.errors import VictimError, first_line
from brusle.files import refuse_special

Held = Literal["checkpoint", "pickle", "safetensors", "torchscript", "export", "other"]
_USUAL_KEYS = ("state_dict", "model_state_dict", "model", "net", "weights")
_WEIGHTS_ONLY = "checkpoints load as weights only"


def what_is(path: str) -> Held:
    """What a file holds, by its content: extensions say little.

    Raises:
        VictimError: if it cannot be a model of any kind.
    """
    refuse_special(path)
    try:
        with open(path, "rb") as file:
            head = file.read(512)
    except OSError as error:
        raise VictimError(f"cannot open {path}: {error.strerror}") from error
    text = head.lstrip().lower()
    if not head:
        raise VictimError(f"{path} is empty: copy or fetch it again")
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise VictimError(f"{path} is a web page, not a model: fetch the file itself again")
    if text.startswith(b"version https://git-lfs"):
        raise VictimError(f"{path} is a Git LFS pointer, not a model: run git lfs pull")
    if head.startswith(b"PK"):
        return _what_archive(path)
    if head.startswith(b"\x80"):
        return "pickle"
    # a short header in JSON behind its length
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 2**30:
        return "safetensors"
    if all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in head):
        raise VictimError(f"{path} is a text file, not a model")
    return "other"


def read_weights(path: str, key: str | None = None) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, without running any code that the file may hold.

    Args:
        path: ``.safetensors``, or anything that ``torch.save`` has written.
        key: where in the file the state dict is, with dots between keys; None tries the usual.
    """
    held = what_is(path)
    if held in ("torchscript", "export"):
        raise VictimError(f"{path} is a whole program, not a checkpoint: load it as {held}:{path}")
    if held == "other":
        raise VictimError(f"{path} is no checkpoint: give a file from torch.save or safetensors")
    content = _read_safetensors(path) if held == "safetensors" else _read_pickle(path)
    return _state_dict(content, path, key)


def match_names(
    module: nn.Module, weights: Mapping[str, Tensor], rename: Callable[[str], str] = str
) -> dict[str, Tensor]:
    """``weights`` under the names of ``module``, as far as they can be told.

    Args:
        module: the net; it may be on the meta device, since only its names are looked at.
        weights: tensors by name; prefixes that all names share are taken off if that helps.
        rename: from other names that the net's layers are known by to its own.
    """
    own = module.state_dict().keys()
    spellings = [dict(weights)]
    while len({name.partition(".")[0] for name in spellings[-1]}) == 1:
        spellings.append({name.partition(".")[2]: w for name, w in spellings[-1].items()})
    renamed = [{rename(name): w for name, w in one.items()} for one in spellings]
    return max(renamed, key=lambda one: len(one.keys() & own))


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], path: str) -> None:
    """Put ``weights`` into ``module``, or say which is the first that does not fit."""
    own = module.state_dict()
    strange = [name for name in weights if name not in own]
    for name, tensor in own.items():
        if name not in weights:
            # counters that inference does not need, and that old checkpoints lack
            if name.endswith("num_batches_tracked"):
                continue
            instead = f", but {strange[0]}" if strange else ""
            raise VictimError(f"{path} has no {name}{instead}: is it another architecture?")
        if weights[name].shape != tensor.shape:
            there, here = tuple(weights[name].shape), tuple(tensor.shape)
            raise VictimError(
                f"{name} is {there} in {path} and {here} in the architecture: is it another "
                f"architecture, or another number of classes?"
            )
    if strange:
        raise VictimError(f"{path} has {strange[0]}, which the architecture does not have")
    module.load_state_dict(dict(weights), strict=False)


@contextmanager
def weights_only() -> Iterator[None]:
    """Make every ``torch.load`` in here refuse code, whatever other packages ask of it."""
    with environment({"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}):
        yield


def _what_archive(path: str) -> Held:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise VictimError(f"{path} is a damaged archive: copy or fetch it again") from error
    inside = {name.partition("/")[2] or name for name in names}
    if "constants.pkl" in inside:
        return "torchscript"
    if inside & {"archive_format", "serialized_exported_program.json"}:
        return "export"
    return "checkpoint" if "data.pkl" in inside else "other"


def _read_safetensors(path: str) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise VictimError(f"{path} is a damaged safetensors file ({error})") from error


def _read_pickle(path: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        if found is None:
            raise VictimError(
                f"{path} is a pickle that torch.save has not written: {_WEIGHTS_ONLY}, so save "
                f"model.state_dict() with torch.save"
            ) from error
        raise VictimError(
            f"{path} holds a {found[1]}, which would run code: {_WEIGHTS_ONLY}, so save "
            f"model.state_dict() where the model was made"
        ) from error
    except Exception as error:
        raise VictimError(
            f"{path} is a damaged checkpoint ({first_line(error)[:80]}): copy or fetch it again"
        ) from error


def _state_dict(content: Any, path: str, key: str | None) -> dict[str, Tensor]:
    if key is not None:
        for part in key.split("."):
            if not isinstance(content, Mapping) or part not in content:
                raise VictimError(f"{path} has no key {part!r}{_keys(content)}")
            content = content[part]
    while isinstance(content, Mapping) and not _is_state_dict(content):
        usual = next((k for k in _USUAL_KEYS if isinstance(content.get(k), Mapping)), None)
        if usual is None:
            raise VictimError(
                f"{path} has no state dict at a usual place{_keys(content)}; say which with key="
            )
        content = content[usual]
    if not isinstance(content, Mapping):
        raise VictimError(f"{path} holds a {type(content).__name__}, not a state dict")
    return {str(name): weight for name, weight in content.items()}


def _is_state_dict(content: Mapping[Any, Any]) -> bool:
    return bool(content) and all(isinstance(value, Tensor) for value in content.values())


def _keys(content: Any) -> str:
    if not isinstance(content, Mapping) or not content:
        return ""
    return f": it has {', '.join(repr(key) for key in list(content)[:6])}"
