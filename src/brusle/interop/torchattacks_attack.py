"""Attacks of brusle as torchattacks has them (Kim, 2020)."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from brusle import rng
from brusle.attacks.base import BaseAttack
from brusle.errors import InputError
from brusle.interop.calling import Case
from brusle.interop.layout import Layout, on_levels
from brusle.packages import need
from brusle.results import AttackResult
from brusle.scores import Output
from brusle.search import Attack
from brusle.victim import Victim
from brusle.victims import normalised, wrap

_Base: Any = need("torchattacks.attack", "brusle.interop.torchattacks", InputError).Attack
_RANDOM_TARGET = rng.purpose("brusle.interop: a random target")


class TorchattacksAttack(_Base):  # type: ignore[misc]  # torchattacks is there or not
    """An attack of brusle that is called as torchattacks' own; see `brusle.interop.torchattacks`.

    All modes of torchattacks are supported, and normalisation by ``set_normalization_used``.
    """

    def __init__(
        self,
        attack: BaseAttack,
        model: nn.Module,
        output: Output,
        seed: int,
        batch_size: int | None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"{type(model).__name__} is no nn.Module, which torchattacks wants")
        super().__init__(attack.label, model)
        self.supported_mode = ["default", "targeted"]
        # past their __setattr__, which compares all that it has ever been given
        plain = cast(Attack, attack)
        self.__dict__ |= {
            "pixels": plain.pixels,
            "queries": plain.queries,
            "_ours": attack,
            "_output": output,
            "_seed": seed,
            "_batch_size": batch_size,
            "_result": None,
        }

    @property
    def result(self) -> AttackResult | None:
        """Of the last call; None before the first."""
        result: AttackResult | None = self._result
        return result

    def __call__(self, inputs: Tensor, labels: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        """As torchattacks does it: in evaluation mode, and without the normalisation."""
        applied, training = self._normalization_applied, self.model.training
        try:
            found: Tensor = super().__call__(inputs, labels, *args, **kwargs)
        except BaseException:  # they would leave it as it was within
            self._set_normalization_applied(applied)
            self._recover_model_mode(training)
            raise
        if self._normalization_applied is None or self.result is None:
            return found
        # their way there and back costs a rounding, which is no change of a pixel
        changed = self.result.images != self.result.problems.images
        return torch.where(changed.to(found.device), found, inputs.to(found.device, found.dtype))

    def forward(self, images: Tensor, labels: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        """Attack images in [0, 1], and return the best found.

        Args:
            images: ``(n, c, h, w)``.
            labels: true labels, or in the mode "targeted(label)" those to reach.
            *args: none.
            **kwargs: none.
        """
        if args or kwargs:
            raise InputError("attacks of brusle take images and labels, and nothing else")
        if labels is None:
            raise InputError("labels are missing: give them, as in attack(images, labels)")
        if self._model_training:
            raise InputError(
                "the training mode is set, but brusle asks models in evaluation mode only: "
                "leave set_model_training_mode out"
            )
        theirs = images.detach()
        ours = on_levels(theirs) if self._normalization_applied is False else theirs
        case = Case(self._ours, self._victim(), ours, None, self._seed, self._batch_size)
        result = self.__dict__["_result"] = self._attacked(case, images, labels)
        found = Layout().put_back(theirs, result.problems.images, result.images)
        return found if self.device is None else found.to(self.device)

    def _attacked(self, case: Case, images: Tensor, labels: Any) -> AttackResult:
        if not self.targeted:
            return case.leaving(labels)
        if self.attack_mode == "targeted(label)":
            return case.reaching(labels)
        if self.attack_mode in ("targeted(least-likely)", "targeted(random)"):
            look = case.look(targeted=True)
            true = case.integers(labels, look)
            if self.attack_mode == "targeted(random)":
                return case.reaching(_random(case, look.scores.shape[1], true), look)
            return case.reaching(_least_likely(look.scores, true, self._kth_min), look)
        return case.reaching(self.get_target_label(images, labels))

    def _victim(self) -> Victim:
        net = self.model
        if self._normalization_applied is False:
            used = self.normalization_used
            mean, std = (used[name].flatten().tolist() for name in ("mean", "std"))
            net = normalised(net, mean, std)
        device = self.device or "cpu"
        return wrap(net, output=self._output, device=device, name=self.model_name)


def _least_likely(scores: Tensor, labels: Tensor, kth: int) -> Tensor:
    """The labels with the k-th lowest scores, besides the true ones."""
    if kth > scores.shape[1] - 1:
        raise InputError(f"kth_min is {kth}, but there are {scores.shape[1] - 1} other labels")
    others = scores.scatter(1, labels[:, None], torch.inf)
    return others.sort(dim=1, stable=True).indices[:, kth - 1]


def _random(case: Case, classes: int, labels: Tensor) -> Tensor:
    """Any label but the true one, by the seed and the image."""
    ids = torch.tensor([rng.content_id(image.numpy().tobytes()) for image in case.images.cpu()])
    draw = rng.bits(rng.streams(case.seed, ids), 0, _RANDOM_TARGET, 1)[:, 0].long()
    other = draw % (classes - 1)
    return other + (other >= labels).long()
