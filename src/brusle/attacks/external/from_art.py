"""Attacks of the Adversarial Robustness Toolbox (Nicolae et al., 2018) under brusle's ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from brusle.attacks.external import External
from brusle.attacks.external.libraries import Library
from brusle.attacks.external.model import Model
from brusle.packages import need

ART = Library(
    title="ART",
    kind="art",
    module="art.attacks.evasion",
    base=("art.attacks.attack", "EvasionAttack"),
    labels=frozenset(
        ["BoundaryAttack", "GeoDA", "HopSkipJump", "SignOPTAttack", "SpatialTransformation"]
    ),
    scores=frozenset(["PixelAttack", "SimBA", "SquareAttack", "ThresholdAttack", "ZooAttack"]),
    sparse=("PixelAttack",),
    goals=dict.fromkeys(["GeoDA", "SpatialTransformation", "SquareAttack"], "untargeted"),
)
_PROBABILITIES = ("SimBA",)  # it refuses others
_WITHIN_BUDGET = ("PixelAttack",)  # it is told how many pixels it may change


def art(
    name: str, *, pixels: int, queries: int = 500, levels: bool = False, **options: Any
) -> External:
    """An attack of the Adversarial Robustness Toolbox that needs no gradients, under our ledger.

    PixelAttack gets the budget as its ``th``, and, like ThresholdAttack, ``es=1`` unless told
    otherwise: its other strategy needs the package cma, which seeds itself by the clock.

    Args:
        name: of its class in ``art.attacks.evasion``, as in ``"PixelAttack"``.
        pixels: most pixels that may differ from the original.
        queries: most queries per image.
        levels: as in `External`.
        **options: of the class.
    """
    settings = {"pixels": pixels, "queries": queries, "levels": levels, "arrays": "numpy"}
    attack = _ArtAttack(name)
    return ART.external(
        name,
        attack,
        attack.try_out,
        options,
        output="probabilities" if name in _PROBABILITIES else "scores",
        shrinks=name not in _WITHIN_BUDGET,
        **settings,
    )


@dataclass(frozen=True)
class _ArtAttack:
    """An attack as a function, which is found by its name also in another process."""

    name: str

    def make(self, estimator: Any, options: Mapping[str, Any], pixels: int, targeted: bool) -> Any:
        """ART's attack on an estimator."""
        kind = ART.attack(self.name)
        usual: dict[str, Any] = {"verbose": False, "targeted": targeted}
        own = {name: value for name, value in usual.items() if name in kind.attack_params}
        if "es" in kind.attack_params:
            own["es"] = 1
        if self.name in _WITHIN_BUDGET:
            own["th"] = pixels
        return kind(estimator, **own | dict(options))

    def try_out(self, options: Mapping[str, Any]) -> object:
        """Make it for a model that nobody asks."""
        return self.make(_estimator(np.zeros, (3, 8, 8), 10), options, 1, False)

    def __call__(self, model: Model, x: Any, y: Any, targets: Any, **options: Any) -> Any:
        """Run it on one image, as a user of ART would."""
        estimator = _estimator(model, model.shape, model.classes)
        attack = self.make(estimator, options, model.pixels, targets is not None)
        aims = y if targets is None else targets
        return attack.generate(x, np.eye(model.classes, dtype=np.float32)[aims])


def _estimator(predict: Any, shape: tuple[int, int, int], classes: int) -> Any:
    """A black box that also attacks on nets accept, such as PixelAttack."""
    module = need("art.estimators.classification", "a model")
    return module.BlackBoxClassifierNeuralNetwork(
        predict, shape, classes, channels_first=True, clip_values=Model.bounds
    )
