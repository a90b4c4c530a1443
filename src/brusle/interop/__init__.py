"""Attacks of brusle inside other people's libraries: their call, their types, our ledger.

Whatever the library, budgets count pixels and not channel values, images stay in the library's own
range and order of channels, and the last result is kept, with its ledger, as ``result``. See
docs/interop.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brusle.attacks.base import BaseAttack
from brusle.interop.attackbench_attack import AttackBenchAttack
from brusle.interop.auto_attack import AutoAttack
from brusle.interop.calling import require_attack
from brusle.scores import Output

if TYPE_CHECKING:
    from brusle.interop.art_attack import ArtAttack
    from brusle.interop.foolbox_attack import FoolboxAttack
    from brusle.interop.torchattacks_attack import TorchattacksAttack

__all__ = ["AutoAttack", "art", "attackbench", "foolbox", "torchattacks"]


def foolbox(
    attack: BaseAttack,
    *,
    output: Output = "logits",
    data_format: str | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> FoolboxAttack:
    """``attack`` as a Foolbox ``Attack``: ``raw, clipped, success = it(model, x, y, epsilons=5)``.

    Epsilons are numbers of pixels: the attack runs once with each as its budget, and with its own
    for None. `brusle.attacks.Minimal` runs once, and each epsilon asks whether that many pixels do.

    Args:
        attack: the attack.
        output: what the model returns; Foolbox's models return logits.
        data_format: ``"channels_first"`` or ``"channels_last"``, for a model that does not say.
        seed: same seed, same result.
        batch_size: most images in one call of the model; None chooses by image size.
    """
    require_attack(attack)
    from brusle.interop.foolbox_attack import FoolboxAttack

    return FoolboxAttack(attack, output, data_format, seed, batch_size)


def art(
    attack: BaseAttack,
    classifier: Any,
    *,
    output: Output,
    targeted: bool = False,
    channels_first: bool | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> ArtAttack:
    """``attack`` as an ART ``EvasionAttack`` on ``classifier``: ``x_adv = it.generate(x, y)``.

    Args:
        attack: the attack; one that needs gradients wants a ``PyTorchClassifier``.
        classifier: any classifier of ART with ``clip_values``.
        output: what its ``predict`` returns: ``"logits"`` or ``"probabilities"``. ART's
            classifiers return either, and do not say which.
        targeted: ``y`` are the labels to reach; otherwise the true ones.
        channels_first: the order of ``x``, for a classifier that neither says nor shows it.
        seed: same seed, same result.
        batch_size: most images in one call of ``predict``; None chooses by image size.
    """
    require_attack(attack)
    from brusle.interop.art_attack import ArtAttack

    return ArtAttack(attack, classifier, output, targeted, channels_first, seed, batch_size)


def torchattacks(
    attack: BaseAttack,
    model: Any,
    *,
    output: Output = "logits",
    seed: int = 0,
    batch_size: int | None = None,
) -> TorchattacksAttack:
    """``attack`` as an ``Attack`` of torchattacks on ``model``: ``x_adv = it(images, labels)``.

    Args:
        attack: the attack.
        model: an ``nn.Module``.
        output: what it returns.
        seed: same seed, same result.
        batch_size: most images in one call of the model; None chooses by image size.
    """
    require_attack(attack)
    from brusle.interop.torchattacks_attack import TorchattacksAttack

    return TorchattacksAttack(attack, model, output, seed, batch_size)


def attackbench(
    attack: BaseAttack, *, seed: int = 0, batch_size: int | None = None
) -> AttackBenchAttack:
    """``attack`` as AttackBench calls it: ``it(model, inputs, labels, targets, targeted)``.

    Args:
        attack: the attack.
        seed: same seed, same result.
        batch_size: most images in one call of the model; None chooses by image size.
    """
    require_attack(attack)
    return AttackBenchAttack(attack, seed, batch_size)
