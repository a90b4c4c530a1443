"""Victims from Hugging Face's transformers: a folder on the disk, or a repository of the hub."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brusle.errors import InputError, VictimError
from brusle.foreign import foreign_code, quiet
from brusle.names import Name
from brusle.packages import need
from brusle.victims.options import (
    take_class_names,
    take_normalisation,
    take_size,
    torch_victim,
    whole_framing,
)
from brusle.victims.processors import Processing, ProcessingError, read_processor
from brusle.victims.weights import weights_only
from brusle.victims.wrappers import TorchVictim

_PATHS = ("/", ".", "~")  # beginnings that no repository has
_NO_NAME = "LABEL_"  # what transformers calls a class that nobody has named


def hugging_face(name: Name, device: torch.device) -> TorchVictim:
    """``hf:DIR`` or ``hf:OWNER/REPO``: an image classifier of transformers, with its processor."""
    package = need("transformers", name.text)
    if find_spec("torchvision"):  # transformers does without, but not with one that does not fit
        need("torchvision", name.text)
    where = _place(name)
    asked, size = take_class_names(name), take_size(name)
    overrides = {"mean", "std"} & set(name.options)
    if len(overrides) == 1 and name.options.get("mean") != "none":
        raise InputError(f"{name.text!r} has one of mean= and std=: give both or neither")
    normalisation = take_normalisation(name, None)
    name.done()
    with quiet(package), weights_only():
        config = _config(package, name, where)
        channels = _channels(config)
        framing = whole_framing(size) if size else None
        if framing is None or not overrides:
            said = _processing(package, name, where, channels, size is not None)
            framing = framing or said.framing
            normalisation = normalisation if overrides else said.normalisation
        net = _net(package, name, where, config)
    return torch_victim(
        name,
        net,
        device,
        normalisation,
        shape=(channels, *framing.crop),
        framing=framing,
        classes=asked or _classes(config.id2label),
        scores="logits",
    )


def _place(name: Name) -> dict[str, Any]:
    """Where transformers shall look; a folder is read without asking the hub for anything."""
    folder = Path(name.rest).expanduser()
    revision = name.take("revision")
    if folder.is_dir():
        if (folder / "adapter_config.json").exists():
            raise VictimError(
                f"{folder} holds an adapter and not a whole model: merge it into its model where "
                f"it was made (merge_and_unload), and save that"
            )
        place, local = str(folder), True
    elif name.rest.startswith(_PATHS) or folder.exists():
        raise VictimError(f"{folder} is no folder: give one that save_pretrained has written")
    else:
        place, local = name.rest, False
    return {
        "pretrained_model_name_or_path": place,
        "revision": revision or "main",
        "local_files_only": local,
        "trust_remote_code": False,
    }


def _config(package: Any, name: Name, where: dict[str, Any]) -> Any:
    """What the model says of itself, if it is a classifier that can be a victim."""
    with foreign_code(f"{name.text} cannot be opened", VictimError):
        config = package.AutoConfig.from_pretrained(**where)
    for wrong, remedy in (
        (
            config.model_type == "timm_wrapper",
            f"is timm's: load it as timm:hf-hub:{name.rest}",
        ),
        (
            getattr(config, "quantization_config", None) is not None,
            "is quantised, which other packages do: bring it as python:",
        ),
        (
            any("/" in attention for attention in _attentions(config)),
            "asks for a program from the hub in its attn_implementation: take that out of its "
            "config.json",
        ),
        (
            getattr(config, "problem_type", None) == "multi_label_classification",
            "says yes or no to each label by itself: bring it as python:, wrapped with "
            "output='confidences'",
        ),
        (
            len(config.id2label) < 2,
            "has fewer than two classes: it is no classifier",
        ),
    ):
        if wrong:
            raise VictimError(f"{name.rest} {remedy}")
    config.return_dict = True
    return config


def _attentions(config: Any) -> list[str]:
    """What computes attention, in the model and its parts; a repository's name is a program."""
    parts = [config, *vars(config).values()]
    return [str(getattr(part, "_attn_implementation", None)) for part in parts]


def _processing(
    package: Any, name: Name, where: dict[str, Any], channels: int, sized: bool
) -> Processing:
    """What the model's processor does; ``sized`` if the user has said the size of images."""
    unread = f"{name.text} has no processor that can be read (say size= and mean=, std= instead)"
    with foreign_code(unread, VictimError):
        processor = package.AutoImageProcessor.from_pretrained(**where)
    try:
        found = read_processor(processor, channels)
    except ProcessingError as error:
        raise VictimError(
            f"the processor of {name.rest} cannot be had as framing and normalisation: {error}; "
            f"say size= and mean=, std= instead, or bring the model as python:"
        ) from error
    if found.square and not sized:
        raise VictimError(
            f"the processor of {name.rest} resizes and does not crop, so that images differ in "
            f"shape: say size="
        )
    return found


def _net(package: Any, name: Name, where: dict[str, Any], config: Any) -> nn.Module:
    """The model, all of its weights from its files."""
    with foreign_code(f"{name.text} cannot be opened", VictimError):
        net, told = package.AutoModelForImageClassification.from_pretrained(
            config=config, output_loading_info=True, **where
        )
    missing = sorted(told["missing_keys"])
    if missing:
        raise VictimError(
            f"{name.rest} has no {missing[0]}, so that its answers would be random: it is no "
            f"classifier (yet), fine-tune it first"
        )
    module: nn.Module = net
    return module


def _channels(config: Any) -> int:
    vision = getattr(config, "vision_config", None)
    return int(getattr(config, "num_channels", None) or getattr(vision, "num_channels", None) or 3)


def _classes(labels: dict[int, str]) -> tuple[str, ...] | None:
    """Names of the classes by their number; None if they have none."""
    if sorted(labels) != list(range(len(labels))):
        return None
    names = tuple(str(labels[number]) for number in range(len(labels)))
    return None if all(one.startswith(_NO_NAME) for one in names) else names
