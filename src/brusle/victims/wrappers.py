"""Torch modules and plain functions as victims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from brusle import normalisation
from brusle.allocation import keep_freed_memory
from brusle.data.images import Framing
from brusle.errors import InputError, VictimError
from brusle.replies import Consultation, Reply
from brusle.scores import MISSING, Gives, Missing, Output
from brusle.trouble import PATIENCE, Patience
from brusle.victim import Victim, traits
from brusle.victims.borrowing import Placed, evaluating
from brusle.victims.fusion import Fused
from brusle.victims.parts import OnlyScores, Part, scores_in
from brusle.vocabulary import Vocabulary

Arrays = Literal["torch", "numpy"]


@dataclass
class TorchVictim:
    """An ``nn.Module`` that takes images in [0, 1] and returns ``output``.

    The module is in evaluation mode whenever it is asked, and given back in the mode that each of
    its layers was in. It is not moved or converted: where it is on another device or of another
    type, a copy answers, which follows the module's weights. One that casts its images itself keeps
    its types. Queries run in inference mode.

    Attributes:
        module: the model, normalisation included (see `normalised`).
        output: what it returns, ``"logits"``, ``"probabilities"`` or ``"confidences"``.
        device: where it runs.
        dtype: type of the numbers that it computes with.
        channels_last: memory layout of images; quicker for most convolutional nets.
        name: for messages and reports.
        classes: names of the classes, if known.
        shape: (channels, height, width) of its images, if fixed.
        framing: how photographs of another size are brought to that shape, if known.
        randomised: its answers to the same image vary.
        fuse: merge batch normalisations into convolutions (see `brusle.victims.fusion`).
        scores: which part of what the module returns its scores are (see `brusle.victims.parts`);
            None for a module that returns nothing else.
    """

    module: nn.Module
    output: Output = "logits"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    channels_last: bool = True
    name: str = "model"
    classes: Sequence[str] | None = None
    shape: tuple[int, int, int] | None = None
    framing: Framing | None = None
    randomised: bool = False
    fuse: bool = True
    scores: Part | None = None

    def __post_init__(self) -> None:
        _check_output(self.output)
        if self.device.type == "cpu":
            keep_freed_memory()
        self._placed = Placed(self.module, self.device, self.dtype)
        self._fused: Fused | None = None
        self._bare = False  # it has been seen to return scores and nothing else

    @property
    def differentiable(self) -> bool:
        """Torch modules are; one that is not raises when it is asked for a gradient."""
        return True

    def __call__(self, images: Tensor) -> Tensor:
        """Scores of ``(n, c, h, w)`` images."""
        with evaluating(self.module), torch.inference_mode():
            return self._placed.answer(lambda net: self._scores(self._runner(net), images))

    def graph(self, images: Tensor) -> Tensor:
        """Scores that autograd can follow back to the images."""
        # not the merged twin: its weights may have been made in inference mode
        with evaluating(self.module):
            return self._placed.answer(lambda net: self._scores(net, images))

    @contextmanager
    def borrowed(self) -> Iterator[nn.Module]:
        """The module on ``device``, in ``dtype`` and evaluation mode; later as it was.

        If it may return more than its scores, it stands in another that returns them alone.
        """
        with evaluating(self.module):
            module = self._placed.current()
            yield module if self._bare else OnlyScores(module, self.scores, self.name)

    def _scores(self, module: nn.Module, images: Tensor) -> Tensor:
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        answer = module(images.to(self.device, self.dtype).contiguous(memory_format=layout))
        self._bare = self.scores is None and isinstance(answer, Tensor)
        return _check_kind(scores_in(answer, self.scores, self.name), self.output, self.name)

    def _runner(self, module: nn.Module) -> nn.Module:
        """``module``, with normalisations merged as long as its weights are as they were then."""
        if not self.fuse:
            return module
        if self._fused is None or not self._fused.is_current(module):
            self._fused = Fused(module, self.channels_last)
        return self._fused.quick


@dataclass
class FunctionVictim:
    """A function from images to scores, on torch tensors or NumPy arrays.

    Attributes:
        function: takes ``(n, c, h, w)`` float32 in [0, 1], returns ``(n, classes)``, or with a
            ``vocabulary`` a mapping of label to score for each image.
        output: what it returns. A function cannot be asked, so it must be said.
        arrays: what it takes and returns, ``"torch"`` or ``"numpy"``.
        device: where torch images are when the function gets them.
        name: for messages and reports.
        classes: names of the classes, if known.
        shape: (channels, height, width) of its images, if fixed.
        randomised: its answers to the same image vary.
        differentiable: autograd can follow its scores back to the images.
        patience: how long it is waited for when it is in trouble (see `brusle.trouble`).
        gives: all scores, or ``"partial"``: those of the best labels only, and minus infinity for
            the others.
        missing: what a label counts as that is not named; see `brusle.scores.Meaning`.
        vocabulary: the labels that it has named so far, if it names them.
    """

    function: Callable[[Any], Any]
    output: Output
    arrays: Arrays = "torch"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    name: str = "function"
    classes: Sequence[str] | None = None
    shape: tuple[int, int, int] | None = None
    randomised: bool = False
    differentiable: bool = False
    patience: Patience = PATIENCE
    gives: Gives = "scores"
    missing: Missing = MISSING
    vocabulary: Vocabulary | None = None

    def __post_init__(self) -> None:
        _check_output(self.output)
        if self.arrays not in ("torch", "numpy"):
            raise InputError(f"arrays is {self.arrays!r}: choose 'torch' or 'numpy'")
        if self.differentiable and self.arrays == "numpy":
            raise InputError("a function of NumPy arrays has no gradient: leave differentiable out")

    def __call__(self, images: Tensor) -> Tensor:
        """Scores of ``(n, c, h, w)`` images."""
        return self.graph(images).detach()

    def graph(self, images: Tensor) -> Tensor:
        """Scores that autograd can follow back to the images, if the function lets it."""
        images = images.to(self.device, torch.float32).contiguous()
        if self.arrays == "torch":
            scores = self.function(images)
        else:
            scores = self.function(images.cpu().numpy())
        if self.vocabulary is not None:
            scores = _by_label(scores, self.vocabulary, self.name)
        try:
            scores = torch.as_tensor(scores, device=self.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise VictimError(
                f"{self.name} returned {type(scores).__name__}, which is no array of scores: "
                f"return a ({len(images)}, classes) array of numbers"
            ) from error
        if not scores.is_floating_point() and not scores.is_complex():
            scores = scores.double()
        return scores if self.gives == "partial" else _check_kind(scores, self.output, self.name)


@dataclass(frozen=True)
class VictimView:
    """A victim under another name or with other patience; all else is the victim's own.

    Runs are stored under the name of their victim, and it is opened again by that name.

    Attributes:
        victim: the victim.
        name: for messages and reports.
        patience: how long it is waited for.
    """

    victim: Victim
    name: str
    patience: Patience

    @property
    def output(self) -> Output:
        """What the victim returns."""
        return self.victim.output

    @property
    def device(self) -> torch.device:
        """Where the victim runs."""
        return self.victim.device

    def __call__(self, images: Tensor) -> Tensor:
        """Scores of ``(n, c, h, w)`` images."""
        return self.victim(images)

    def __getattr__(self, attribute: str) -> Any:
        # while it is unpickled, the victim is not there yet
        if attribute == "victim" or attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(self.victim, attribute)


def named(victim: Victim, name: str) -> Victim:
    """``victim`` called ``name``."""
    if victim.name == name:
        return victim
    if isinstance(victim, TorchVictim | FunctionVictim):
        return replace(victim, name=name)
    return VictimView(victim, name, traits(victim).patience)


def timed(victim: Victim, seconds: float | None) -> Victim:
    """``victim``, with a limit on the seconds that one call of it may take.

    A call that takes longer is the victim's trouble: it is made again as its patience allows, and
    then the attack or evaluation ends as if the victim could not be reached.

    Args:
        victim: the victim.
        seconds: the limit; None leaves it as it is.
    """
    if seconds is None:
        return victim
    return VictimView(victim, victim.name, replace(traits(victim).patience, call=seconds))


def wrap(
    model: nn.Module | Callable[[Any], Any],
    *,
    output: Output,
    arrays: Arrays = "torch",
    device: torch.device | str = "cpu",
    name: str | None = None,
    classes: Sequence[str] | None = None,
    shape: tuple[int, int, int] | None = None,
    randomised: bool = False,
    differentiable: bool = False,
    patience: Patience = PATIENCE,
    gives: Gives = "scores",
    missing: Missing = MISSING,
    named: bool = False,
    aliases: Mapping[str, Iterable[str]] | None = None,
    scores: Part | None = None,
) -> TorchVictim | FunctionVictim:
    """Declare what a model or function gives, and get a victim.

    Args:
        model: an ``nn.Module``, or a function from images to scores.
        output: ``"logits"``, ``"probabilities"``, or ``"confidences"``: a number for each label by
            itself, as services give them, which need not sum to one.
        arrays: what a function takes, ``"torch"`` or ``"numpy"``; modules take torch.
        device: where it runs.
        name: for messages and reports; the class or function name if None.
        classes: names of the classes.
        shape: (channels, height, width) of its images, if fixed.
        randomised: its answers to the same image vary, as with noise or dropout at test time.
        differentiable: of a torch function, that autograd can follow it, so that white-box
            attacks can be used; modules always are.
        patience: of a function, how long it is waited for when it is in trouble: a service that
            is busy or cannot be reached, see `brusle.trouble`.
        gives: ``"scores"``: all of them; ``"partial"``: of a function, those of the best labels
            only, and minus infinity for the others.
        missing: what a label counts as in a loss that is not named: a number, or ``"floor"``, the
            lowest score of the same answer. The default suits scores from 0 to 1: what is listed
            is always ahead of what is not (see `brusle.scores.Meaning`).
        named: a function returns, for each image, a mapping of label to score. Labels may be new
            at any time, and those that are not named are absent.
        aliases: a label to other names of it, for functions that name their labels.
        scores: of a module that returns a dict, a tuple or an object, which part of it: a key, a
            place or an attribute. What models of Hugging Face's transformers return is known.
    """
    if not callable(model):
        raise InputError(f"{model!r} cannot be called: give an nn.Module or a function")
    device = torch.device(device)
    if isinstance(model, nn.Module):
        if gives != "scores" or named:
            raise InputError("a module gives all scores: wrap a function that calls it instead")
        label = name or type(model).__name__
        return TorchVictim(
            model,
            output,
            device,
            name=label,
            classes=classes,
            shape=shape,
            randomised=randomised,
            scores=scores,
        )
    if scores is not None:
        raise InputError("a function can return its scores alone: leave scores= out")
    label = name or str(getattr(model, "__name__", type(model).__name__))
    return FunctionVictim(
        model,
        output,
        arrays,
        device,
        label,
        classes,
        shape,
        randomised,
        differentiable,
        patience,
        gives="partial" if named else gives,
        missing=missing,
        vocabulary=Vocabulary(aliases) if named else None,
    )


def normalised(module: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Module:
    """``module`` behind the normalisation (x - mean) / std per channel, for images in [0, 1]."""
    if len(mean) != len(std) or not all(s > 0 for s in std):
        raise InputError(f"mean {mean} and std {std} must be of one length and std above 0")
    return nn.Sequential(_Normalise(mean, std), module)


class _Normalise(nn.Module):
    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return normalisation.normalise(x, self.mean, self.std)


def _check_output(output: object) -> None:
    if output not in get_args(Output):
        raise InputError(f"output is {output!r}: choose from {', '.join(get_args(Output))}")


def _by_label(said: Any, vocabulary: Vocabulary, name: str) -> Tensor:
    """``(n, labels)`` scores of mappings from label to score."""
    try:
        if not all(isinstance(one, Mapping) for one in said):
            raise TypeError("no mapping")
        replies = [
            Reply(np.array([float(score) for score in one.values()]), tuple(map(str, one)))
            for one in said
        ]
    except (TypeError, ValueError) as error:
        raise VictimError(
            f"{name} is declared to name its labels, but returned {type(said).__name__}: return a "
            f"list with a mapping of label to score for each image"
        ) from error
    return Consultation.of(replies, vocabulary).scores


class OutputKindError(VictimError):
    """A victim answers with another kind of scores than it declares."""


def _check_kind(scores: Tensor, output: Output, name: str) -> Tensor:
    """Raise if scores are plainly not of the declared kind; wrong shapes are the oracle's."""
    real = scores.dim() == 2 and scores.numel() and not scores.is_complex()
    if real and bool(scores.isfinite().all()):
        wrong = contradiction(scores, output, name)
        if wrong:
            raise OutputKindError(wrong)
    return scores


def contradiction(scores: Tensor, output: Output, name: str) -> str:
    """Why finite ``(n, classes)`` scores cannot be what is declared, and what to do; or empty."""
    sums_to_one = (scores >= 0).all(1) & ((scores.sum(1) - 1).abs() < 1e-3)
    if output == "probabilities" and not bool(sums_to_one.all()):
        row = scores[~sums_to_one][0]
        return (
            f"{name} is declared to give probabilities, but scores from {float(row.min()):g} to "
            f"{float(row.max()):g} sum to {float(row.sum()):g}: {_declare(name, 'logits')}"
        )
    # one-hot rows may be logits of a rule-based model, anything finer cannot
    if output == "logits" and bool((sums_to_one & (scores.amax(1) < 1)).all()):
        return (
            f"{name} is declared to give logits, but its scores are probabilities: "
            f"{_declare(name, 'probabilities')}"
        )
    return ""


def _declare(name: str, output: Output) -> str:
    """How the user declares the other kind."""
    if name.partition(":")[0] in ("onnx", "torchscript", "export"):
        return f"say output={output} in its name"
    if output == "logits":
        return "declare output='logits'"
    return "declare it with brusle.victims.wrap(model, output='probabilities')"
