"""Victims from the user's own files: checkpoints, TorchScript archives, exported programs."""

from __future__ import annotations

import io
import logging
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brusle.data.images import Shape, imagenet_framing
from brusle.errors import InputError, VictimError, first_line
from brusle.names import Name, hint
from brusle.victims.architectures import ARCHITECTURES
from brusle.victims.batches import in_fixed_batches
from brusle.victims.options import (
    take_class_names,
    take_classes,
    take_normalisation,
    take_output,
    take_scores,
    take_size,
    torch_victim,
    whole_framing,
)
from brusle.victims.parts import scores_in
from brusle.victims.weights import load_weights, match_names, read_weights, weights_only, what_is
from brusle.victims.wrappers import TorchVictim


def checkpoint(name: Name, device: torch.device) -> TorchVictim:
    """Weights for one of the architectures that brusle knows."""
    known = name.take("arch")
    if known is None:
        raise InputError(
            f"{name.text!r} does not say what net the weights are for: add ?arch= and one of "
            f"{', '.join(ARCHITECTURES)}"
        )
    if known not in ARCHITECTURES:
        raise InputError(f"unknown architecture {known!r}{hint(known, ARCHITECTURES)}")
    arch = ARCHITECTURES[known]
    key, prefix, asked = name.take("key"), name.take("prefix"), take_classes(name)
    size = take_size(name) or (arch.size, arch.size)
    normalisation = take_normalisation(name, arch.normalisation)
    name.done()

    weights = read_weights(name.rest, key)
    if prefix is not None:
        weights = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
    with torch.device("meta"):  # names only
        skeleton = arch.build(2)
    weights = match_names(skeleton, weights, arch.rename)
    module = arch.build(_class_count(asked, weights.get(arch.head)))
    load_weights(module, weights, name.rest)
    labels = asked if isinstance(asked, tuple) else arch.labels
    head = weights[arch.head]
    return torch_victim(
        name,
        module,
        device,
        normalisation,
        shape=(3, *size),
        framing=imagenet_framing(size) if size[0] >= 224 else whole_framing(size),
        classes=labels if len(labels) == len(head) else None,
    )


def torchscript(name: Name, device: torch.device) -> TorchVictim:
    """A TorchScript archive: a program in a language of its own, not a pickle."""
    output, normalisation = take_output(name), take_normalisation(name, None)
    size, classes, scores = take_size(name), take_class_names(name), take_scores(name)
    name.done()
    _expect("torchscript", name.rest, "save it with torch.jit.save(torch.jit.script(model), FILE)")
    try:
        with warnings.catch_warnings():  # torch prefers torch.export by now
            warnings.simplefilter("ignore", DeprecationWarning)
            module = torch.jit.load(name.rest, map_location="cpu")  # type: ignore[no-untyped-call]
    except Exception as error:
        raise VictimError(
            f"{name.rest} cannot be loaded as TorchScript ({first_line(error)[:80]}): save it again"
        ) from error
    return torch_victim(
        name,
        module,
        device,
        normalisation,
        shape=(3, *size) if size else None,
        framing=whole_framing(size) if size else None,
        classes=classes,
        output=output,
        channels_last=False,
        scores=scores,
    )


def export(name: Name, device: torch.device) -> TorchVictim:
    """A program that ``torch.export.save`` has written."""
    output, normalisation = take_output(name), take_normalisation(name, None)
    size, classes, scores = take_size(name), take_class_names(name), take_scores(name)
    name.done()
    _expect("export", name.rest, "save it with torch.export.save(torch.export.export(...), FILE)")
    program = _read_program(name.rest)
    if device.type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, device)
    batch, exactly, shape = _input_of(program, name.rest, size)
    return torch_victim(
        name,
        _Program(program.module(), batch, exactly, partial(scores_in, part=scores, name=name.text)),
        device,
        normalisation,
        shape=shape,
        framing=whole_framing(shape[1:]) if shape else None,
        classes=classes,
        output=output,
        channels_last=False,  # the graph may rely on the strides that it was traced with
    )


class _Program(nn.Module):
    """An exported program as an ordinary module, for any number of images.

    Args:
        program: its module, which is in evaluation mode for good.
        batch: the number of images that it takes at once; None takes any number.
        exactly: whether fewer are refused too.
        scores: takes the scores out of what it returns.
    """

    def __init__(
        self,
        program: Callable[[Tensor], Any],
        batch: int | None,
        exactly: bool,
        scores: Callable[[Any], Tensor],
    ):
        super().__init__()
        self.program = program
        self.batch = batch
        self.exactly = exactly
        self.scores = scores
        self.training = False

    def train(self, mode: bool = True) -> _Program:
        """Nothing: the program's own ``train`` and ``eval`` raise."""
        return self

    def forward(self, images: Tensor) -> Tensor:
        if self.batch is None:
            return self._answer(images)
        size = self.batch if self.exactly else min(self.batch, len(images))
        return in_fixed_batches(self._answer, images, size)

    def _answer(self, images: Tensor) -> Tensor:
        return self.scores(self.program(images))


def _read_program(path: str) -> Any:
    try:
        content = Path(path).read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            opaque = [n for n in archive.namelist() if "constants/opaque_obj_" in n]
        if opaque:  # the one part that torch would unpickle without asking torch.load
            raise VictimError(
                f"{path} holds pickled objects, which would run code: export the model without"
            )
        logging.getLogger("torch.export").addFilter(_silent)
        with weights_only():
            return torch.export.load(io.BytesIO(content))
    except VictimError:
        raise
    except Exception as error:
        raise VictimError(
            f"{path} cannot be loaded as an exported program ({first_line(error)[:80]}): export it "
            f"again, with this version of torch"
        ) from error
    finally:
        logging.getLogger("torch.export").removeFilter(_silent)


def _silent(record: logging.LogRecord) -> bool:
    """Keep torch's traceback off the screen; the error says the same in a line."""
    return False


def _input_of(
    program: Any, path: str, size: tuple[int, int] | None
) -> tuple[int | None, bool, Shape | None]:
    """Batch size (or the most, or any), whether exactly that, and image shape of a program."""
    names = program.graph_signature.user_inputs
    inputs = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in names]
    value = inputs[0].meta.get("val") if len(inputs) == 1 else None
    if not isinstance(value, Tensor) or value.dim() != 4:
        raise VictimError(f"{path} is no program of one batch of images: export model(images)")
    batch, *image = value.shape
    shape: Shape | None = (3, *size) if size else None
    if all(isinstance(side, int) for side in image):
        shape = (image[0], image[1], image[2])
    if size is not None and shape is not None and shape[1:] != size:
        raise InputError(f"{path} takes {shape[1]} x {shape[2]} pixels: leave size= out")
    if isinstance(batch, int):
        return batch, True, shape
    upper = program.range_constraints[batch.node.expr].upper
    return (int(upper) if upper.is_Integer else None), False, shape


def _expect(held: str, path: str, remedy: str) -> None:
    """Raise unless the file is an archive of the kind ``held``."""
    found = what_is(path)
    if found == held:
        return
    if found in ("torchscript", "export"):
        raise VictimError(f"{path} is of another kind: load it as {found}:{path}")
    if found in ("checkpoint", "safetensors"):
        raise VictimError(f"{path} holds weights only: load it as checkpoint:{path}?arch=...")
    raise VictimError(f"{path} is no {held} file: {remedy}")


def _class_count(asked: int | tuple[str, ...] | None, head: Tensor | None) -> int:
    """What the user says, else what the checkpoint has."""
    if asked is None:
        return len(head) if head is not None else 2
    return asked if isinstance(asked, int) else len(asked)
