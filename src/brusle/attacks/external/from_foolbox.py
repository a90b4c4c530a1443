"""Attacks of Foolbox (Rauber, Zimmermann, Bethge, Brendel, JOSS 2020) under brusle's ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brusle.attacks.external import External
from brusle.attacks.external.libraries import Library
from brusle.attacks.external.model import Model
from brusle.errors import InputError
from brusle.packages import need

FOOLBOX = Library(
    title="Foolbox",
    kind="foolbox",
    module="foolbox.attacks",
    base=("foolbox.attacks.base", "Attack"),
    labels=frozenset(
        [
            "BinarySearchContrastReductionAttack",
            "BoundaryAttack",
            "GaussianBlurAttack",
            "HopSkipJumpAttack",
            "InversionAttack",
            "L2AdditiveGaussianNoiseAttack",
            "L2AdditiveUniformNoiseAttack",
            "L2ClippingAwareAdditiveGaussianNoiseAttack",
            "L2ClippingAwareAdditiveUniformNoiseAttack",
            "L2ClippingAwareRepeatedAdditiveGaussianNoiseAttack",
            "L2ClippingAwareRepeatedAdditiveUniformNoiseAttack",
            "L2ContrastReductionAttack",
            "L2RepeatedAdditiveGaussianNoiseAttack",
            "L2RepeatedAdditiveUniformNoiseAttack",
            "LinearSearchBlendedUniformNoiseAttack",
            "LinearSearchContrastReductionAttack",
            "LinfAdditiveUniformNoiseAttack",
            "LinfRepeatedAdditiveUniformNoiseAttack",
            "PointwiseAttack",
            "SaltAndPepperNoiseAttack",
            "SpatialAttack",
        ]
    ),
    scores=frozenset(["GenAttack"]),
    sparse=("SaltAndPepperNoiseAttack", "PointwiseAttack"),
    goals={"GenAttack": "targeted"},
)


def foolbox(
    name: str, *, pixels: int, queries: int = 500, levels: bool = False, **options: Any
) -> External:
    """An attack of Foolbox that needs no gradients, under brusle's ledger.

    Args:
        name: of its class in ``foolbox.attacks``, as in ``"SaltAndPepperNoiseAttack"``.
        pixels: most pixels that may differ from the original.
        queries: most queries per image.
        levels: as in `External`.
        **options: of the class; and ``epsilon`` of one that keeps within a distance.
    """
    settings = {"pixels": pixels, "queries": queries, "levels": levels}
    attack = _FoolboxAttack(name)
    return FOOLBOX.external(name, attack, attack.make, options, **settings)


@dataclass(frozen=True)
class _FoolboxAttack:
    """An attack as a function, which is found by its name also in another process."""

    name: str

    def make(self, options: Mapping[str, Any]) -> tuple[Any, float | None]:
        """Foolbox's attack, and the distance that it keeps within; None if it looks for one."""
        kind = FOOLBOX.attack(self.name)
        own = dict(options)
        epsilon = own.pop("epsilon", None)
        minimises = issubclass(kind, need("foolbox.attacks.base", self.name).MinimizationAttack)
        if minimises and epsilon is not None:
            raise InputError(f"{self.name} looks for a small distance by itself: leave epsilon out")
        if not minimises and epsilon is None:
            raise InputError(
                f"{self.name} keeps within a distance: give epsilon=, as in "
                f"foolbox:{self.name}?epsilon=3"
            )
        return kind(**own), epsilon

    def __call__(self, model: Model, x: Any, y: Any, targets: Any, **options: Any) -> Any:
        """Run it on one image, as a user of Foolbox would."""
        foolbox = need("foolbox", self.name)
        attack, epsilon = self.make(options)
        criterion = foolbox.criteria.Misclassification(y)
        if targets is not None:
            criterion = foolbox.criteria.TargetedMisclassification(targets)
        raw, _, _ = attack(_model_of(model), x, criterion, epsilons=epsilon)
        return raw


def _model_of(model: Model) -> Any:
    """The model as Foolbox wants it."""
    foolbox, eagerpy = need("foolbox", "a model"), need("eagerpy", "a model")

    class _Model(foolbox.models.Model):  # type: ignore[misc, name-defined]
        data_format = "channels_first"

        @property
        def bounds(self) -> Any:
            return foolbox.types.Bounds(*model.bounds)

        def __call__(self, inputs: Any) -> Any:
            images, restore_type = eagerpy.astensor_(inputs)
            return restore_type(eagerpy.astensor(model(images.raw)))

    return _Model()
