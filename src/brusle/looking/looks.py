"""One entry to all maps: which are possible, and which is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from brusle import calls
from brusle.batching import default_batch_size
from brusle.defences import taken_apart
from brusle.errors import BrusleError, InputError, VictimError, first_line
from brusle.looking.inside import look_into, ways_into
from brusle.looking.nets import net_behind
from brusle.looking.occlusion import PATCHES, occlude, queries_for
from brusle.problems import Problems
from brusle.victim import Victim, check_shape, meaning_of, traits
from brusle.victims.registry import as_victim
from brusle.victims.wrappers import TorchVictim

How = Literal["attention", "attention-last", "gradcam", "occlusion"]
_GRADIENTS = 4  # an image whose gradient is wanted takes about as many times the memory


@dataclass(frozen=True)
class Look:
    """Where a victim looks, for some images.

    Attributes:
        how: ``"gradcam"``, ``"attention"``, ``"attention-last"`` or ``"occlusion"``.
        maps: ``(n, h, w)`` float32, as large as the images; not scaled. GradCAM: features times
            slopes of the logit, 0 or more. Attention: the share of a patch in what the classifier
            reads, from 0 to 1. Occlusion: how far the probability (or confidence) of the class
            falls, below 0 where it rises.
        layer: name of the layer that was looked at; empty if there is no single one.
        queries: images that the victim was asked for by occlusion; 0 for the others.
        note: a caption.
    """

    how: How
    maps: NDArray[np.float32]
    layer: str
    queries: int
    note: str

    @property
    def scaled(self) -> NDArray[np.float32]:
        """The maps for drawing: each divided by its own largest value, whatever its sign."""
        largest: NDArray[np.float32] = np.abs(self.maps).max(axis=(1, 2), keepdims=True)
        return np.divide(self.maps, np.where(largest > 0, largest, 1), dtype=np.float32)


def look(
    victim: Any,
    images: Any,
    labels: Any,
    *,
    how: How | Literal["auto"] = "auto",
    layer: str | None = None,
    patches: int = PATCHES,
    batch_size: int | None = None,
    device: str = "auto",
) -> Look:
    """Where ``victim`` looks in ``images``.

    A module is left as it was: maps are made with a copy that shares its weights.

    Args:
        victim: a victim, a module, or the name of a victim.
        images: ``(n, c, h, w)`` in [0, 1].
        labels: ``(n,)``: for each image the class that is explained. Attention is the same for all.
        how: one of `hows`; ``"auto"`` takes attention for transformers, GradCAM for convolutional
            nets, and occlusion for victims that have no gradient, unless they keep books: then
            each image may cost something, and occlusion must be asked for.
        layer: for GradCAM, the name of a layer, as in ``"layer4.1.conv2"``; None takes the last
            convolution with an output of more than one place.
        patches: for occlusion, squares on each side of an image.
        batch_size: most images at once; None chooses.
        device: as in `brusle.load_victim`.
    """
    problems = Problems.make(images, labels)
    subject = as_victim(victim, device)
    check_shape(problems.shape, subject)
    _require_options(how, layer, batch_size)
    size = batch_size or default_batch_size(problems.shape, subject.device)
    behind = None if how == "occlusion" else net_behind(subject)
    if behind is not None:
        with _contained(subject):
            found = look_into(behind, problems, how, layer, max(1, size // _GRADIENTS))
        if found is not None:
            maps = found.maps.numpy()
            return Look(cast(How, found.how), maps, found.layer, 0, found.note + _varies(subject))
    elif how != "occlusion":
        _require_auto(subject, problems, layer or how, patches)
    return _occlusion(subject, problems, size, patches)


def hows(victim: Any, device: str = "auto") -> tuple[How, ...]:
    """The ways to look at ``victim``, the best first.

    A net that says the size of its images is tried with a grey one; of others, the layers are
    looked at, and a way may turn out not to suit them.

    Args:
        victim: a victim, a module, or the name of a victim.
        device: as in `brusle.load_victim`.
    """
    subject = as_victim(victim, device)
    behind: TorchVictim | None = net_behind(subject)
    if behind is None:
        return ("occlusion",)
    with _contained(subject):
        ways = ways_into(behind)
    return (*cast(tuple[How, ...], ways), "occlusion")


def _require_options(how: str, layer: str | None, batch_size: int | None) -> None:
    if how != "auto" and how not in get_args(How):
        raise InputError(f"how is {how!r}: choose from auto, {', '.join(get_args(How))}")
    if layer is not None and how not in ("auto", "gradcam"):
        raise InputError(f"layer={layer!r} is for GradCAM: say how='gradcam', or leave it out")
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size is {batch_size}: it must be at least 1")


def _require_auto(victim: Victim, problems: Problems, wanted: str, patches: int) -> None:
    """Raise if something inside is ``wanted`` of a victim that shows nothing, or if it may cost."""
    if wanted != "auto":
        raise InputError(
            f"{victim.name} does not show its layers, so there is no {wanted}: use "
            f"how='occlusion'; a net behind a defence can be looked at as victim.victim"
        )
    # asked of an attribute, not of a class: who passes it on, as a time limit does, is of another
    if any(hasattr(one, "consult") for one in (victim, taken_apart(victim)[0])):
        count = queries_for(problems.images, patches)
        raise InputError(
            f"{victim.name} keeps books, and to look at it takes {count} queries: say "
            f"how='occlusion' if you want that"
        )


@contextmanager
def _contained(victim: Victim) -> Iterator[None]:
    """Somebody's net changes nothing here, and whatever it raises becomes one line."""
    cuda = [victim.device] if victim.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(cuda), calls.contained():
            yield
    except BrusleError:
        raise
    except SystemExit as error:
        raise VictimError(
            f"{victim.name} tried to end the program (exit code {error.code}) when it was looked "
            f"into: let it raise an exception instead"
        ) from error
    except Exception as error:
        raise VictimError(
            f"{victim.name} cannot be looked into ({first_line(error)}): use how='occlusion'"
        ) from error


def _occlusion(victim: Victim, problems: Problems, batch_size: int, patches: int) -> Look:
    found = occlude(victim, problems, batch_size, patches)
    score = "confidence" if meaning_of(victim).output == "confidences" else "probability"
    lost = (
        f"; {found.unanswered} were not answered and count as no fall" if found.unanswered else ""
    )
    absent = "; a label that is not listed counts as 0" if found.partial else ""
    note = (
        f"fall of the class's {score} when a square is covered with the mean colour "
        f"({found.queries} queries{lost}{absent})"
    )
    return Look("occlusion", found.maps.numpy(), "", found.queries, note + _varies(victim))


def _varies(victim: Victim) -> str:
    return "; answers vary, this is one draw" if traits(victim).randomised else ""
