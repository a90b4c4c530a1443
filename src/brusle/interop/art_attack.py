"""Attacks of brusle as the Adversarial Robustness Toolbox has them (Nicolae et al., 2018)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from brusle.attacks.base import BaseAttack
from brusle.errors import InputError
from brusle.interop.calling import Case, require_attack
from brusle.interop.layout import Layout
from brusle.lazy import same_random_numbers
from brusle.packages import need
from brusle.results import AttackResult
from brusle.scores import Output
from brusle.victim import Victim
from brusle.victims import wrap

with same_random_numbers():
    _Base: Any = need("art.attacks.attack", "brusle.interop.art", InputError).EvasionAttack
    _estimators = need("art.estimators", "brusle.interop.art", InputError)
    _classification = need("art.estimators.classification", "brusle.interop.art", InputError)

Array = npt.NDArray[Any]
_CHANNELS = (1, 3, 4)  # that images have as a rule


class ArtAttack(_Base):  # type: ignore[misc]  # ART is there or not
    """An attack of brusle that is called as ART's own are; see `brusle.interop.art`.

    Attributes:
        attack: the attack.
        result: of the last call; None before the first.
    """

    attack_params = (
        *_Base.attack_params,
        "attack",
        "output",
        "targeted",
        "channels_first",
        "seed",
        "batch_size",
    )
    _estimator_requirements = (
        _estimators.BaseEstimator,
        _classification.ClassifierMixin,
    )

    def __init__(
        self,
        attack: BaseAttack,
        classifier: Any,
        output: Output,
        targeted: bool,
        channels_first: bool | None,
        seed: int,
        batch_size: int | None,
    ) -> None:
        super().__init__(estimator=classifier)
        self.attack, self.output, self.channels_first = attack, output, channels_first
        self.seed, self.batch_size = seed, batch_size
        self._targeted = targeted
        self.result: AttackResult | None = None
        self._check_params()

    def generate(self, x: Any, y: Any = None, *, x_adv_init: Any = None, **kwargs: Any) -> Array:
        """Attack ``x`` and return adversarial images, the best found where there is no success.

        Args:
            x: images within the classifier's ``clip_values``, in its order of channels.
            y: labels, or targets if the attack is targeted: numbers or one-hot rows. Without
                them, what the classifier says to ``x``, as ART's attacks have it.
            x_adv_init: starting images, for the attacks that want them.
            **kwargs: ART's attacks take others; here there are none.
        """
        if kwargs:
            raise InputError(f"{next(iter(kwargs))} is unknown to attacks of brusle: leave it out")
        if y is None and self.targeted:
            raise InputError("a targeted attack needs y, the labels to reach")
        theirs, layout = _floats(x), self._layout()
        images = layout.inward(theirs)
        starts = None if x_adv_init is None else layout.inward(_floats(x_adv_init))
        victim = self._victim(layout, theirs.dtype)
        case = Case(self.attack, victim, images, starts, self.seed, self.batch_size)
        self.result = self._attacked(case, y)
        found = layout.put_back(theirs, images.float(), self.result.images)
        adversarial: Array = found.numpy()
        return adversarial

    def _attacked(self, case: Case, y: Any) -> AttackResult:
        if y is None:
            return case.leaving_predictions()
        aims = _indices(y, self.estimator.nb_classes)
        return case.reaching(aims) if self.targeted else case.leaving(aims)

    def _check_params(self) -> None:
        require_attack(self.attack)
        for name in ("targeted", "channels_first"):
            value = getattr(self, name)
            if not isinstance(value, bool) and not (name == "channels_first" and value is None):
                raise InputError(f"{name} is {value!r}: it must be true or false")
        self._layout()
        super()._check_params()

    def _layout(self) -> Layout:
        ends = self.estimator.clip_values
        if ends is None:
            raise InputError(
                f"{type(self.estimator).__name__} has no clip_values, so nobody knows what black "
                f"and white are: make it with clip_values=(0, 1), or whatever its images have"
            )
        low, high = (np.unique(end) for end in ends)
        if len(low) > 1 or len(high) > 1:
            raise InputError(
                "clip_values differ from value to value: give one range, as in (0, 1), and "
                "normalise in the classifier with preprocessing=(mean, std)"
            )
        return Layout(float(low[0]), float(high[0]), not self._first())

    def _first(self) -> bool:
        """Whether channels come first: what the classifier says, or its images show."""
        said = getattr(self.estimator, "channels_first", None)
        if self.channels_first is not None:
            if said is not None and said != self.channels_first:
                raise InputError(
                    f"channels_first is {self.channels_first}, but the classifier says {said}: "
                    f"leave it out"
                )
            return self.channels_first
        if said is not None:
            return bool(said)
        shape = tuple(self.estimator.input_shape)
        first, last = shape[0] in _CHANNELS, shape[-1] in _CHANNELS
        if len(shape) != 3 or first == last:
            raise InputError(
                f"{type(self.estimator).__name__} takes images of shape {shape}, which does not "
                f"say where the channels are: give channels_first=True or False"
            )
        return first

    def _victim(self, layout: Layout, dtype: torch.dtype) -> Victim:
        """The classifier, asked through ``predict``, and for gradients through its graph."""
        estimator = self.estimator

        def scores(images: Tensor) -> Tensor:
            handed = layout.outward(images).to(dtype)
            if images.requires_grad:
                followed: Tensor = estimator._predict_framework(handed)[0]
                return followed.float()  # as predict returns it
            return torch.as_tensor(estimator.predict(handed.cpu().numpy(), batch_size=len(handed)))

        return wrap(
            scores,
            output=self.output,
            device=getattr(estimator, "device", "cpu"),
            name=type(estimator).__name__,
            differentiable=_has_graph(estimator),
        )


def _has_graph(estimator: Any) -> bool:
    """Whether autograd can follow all that ``predict`` does."""
    return (
        isinstance(estimator, _classification.PyTorchClassifier)
        and estimator.all_framework_preprocessing
        and not estimator.postprocessing_defences
    )


def _floats(x: Any) -> Tensor:
    """An array as floats, its own or those that ART works with."""
    array = np.asarray(x)
    return torch.tensor(array if array.dtype.kind == "f" else array.astype(np.float32))


def _indices(y: Any, classes: int) -> Tensor:
    """Labels as numbers, from numbers or one-hot rows."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == classes > 1:
        if not ((np.sort(labels, axis=1)[:, -1] == 1) & (labels.sum(1) == 1)).all():
            raise InputError("y has rows that are not one-hot: give one label for each image")
        return torch.tensor(labels.argmax(1))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind == "f" and (labels == np.rint(labels)).all():
        labels = labels.astype(np.int64)
    return torch.tensor(labels)
