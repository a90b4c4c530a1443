"""Attacks of brusle as Foolbox has them (Rauber et al., JOSS 2020)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brusle.attacks.base import BaseAttack, SparseAttack
from brusle.attacks.combined import Restarts
from brusle.attacks.minimal import Minimal
from brusle.errors import InputError
from brusle.interop.calling import Case, in_pixels, reached_at_once, with_pixels
from brusle.interop.layout import Layout
from brusle.packages import need
from brusle.results import AttackResult
from brusle.scores import Output
from brusle.victim import Victim
from brusle.victims import wrap

_fb = need("foolbox", "brusle.interop.foolbox", InputError)
_ep = need("eagerpy", "brusle.interop.foolbox", InputError)  # Foolbox brings it
_Base: Any = _fb.Attack
_ORDERS = {"channels_first": False, "channels_last": True}


class FoolboxAttack(_Base):  # type: ignore[misc]  # Foolbox is there or not
    """An attack of brusle that is called as Foolbox's own are; see `brusle.interop.foolbox`.

    Attributes:
        attack: the attack.
        results: of the last call, one for each epsilon.
    """

    def __init__(
        self,
        attack: BaseAttack,
        output: Output,
        data_format: str | None,
        seed: int,
        batch_size: int | None,
    ) -> None:
        if data_format is not None and data_format not in _ORDERS:
            raise InputError(f"data_format is {data_format!r}: choose from {', '.join(_ORDERS)}")
        self.attack, self.output, self.data_format = attack, output, data_format
        self.seed, self.batch_size = seed, batch_size
        self.results: list[AttackResult] = []

    @property
    def result(self) -> AttackResult | None:
        """Of the last call, for its last epsilon; None before the first."""
        return self.results[-1] if self.results else None

    def __call__(
        self,
        model: Any,
        inputs: Any,
        criterion: Any,
        *,
        epsilons: Any = None,
        starting_points: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, Any, Any]:
        """Attack ``inputs`` and return ``raw, clipped, is_adv``, as Foolbox's attacks do.

        Args:
            model: a Foolbox model.
            inputs: images within its bounds, of any library that EagerPy knows.
            criterion: labels, ``Misclassification`` or ``TargetedMisclassification``.
            epsilons: a number of pixels, or several; None is the budget of the attack.
            starting_points: starting images, for the attacks that want them.
            **kwargs: Foolbox's attacks take others; here there are none.

        Returns:
            ``raw``: the best images found. ``clipped``: the same, but the originals where that took
            more than epsilon pixels. ``is_adv``: where the criterion is met, as it is from the
            start for what the model gets wrong anyway. For several epsilons, two lists of K arrays
            and a ``(K, n)`` array.
        """
        if kwargs:
            raise InputError(f"{next(iter(kwargs))} is unknown to attacks of brusle: leave it out")
        call = _Call.of(self, model, inputs, criterion)
        several = isinstance(epsilons, Iterable)
        budgets = [self._budget(epsilon) for epsilon in (epsilons if several else [epsilons])]
        if not budgets:
            raise InputError("epsilons are empty: give numbers of pixels, or None")
        starts = None if starting_points is None else call.inward(starting_points)
        done = {b: self._attacked(call, b, starts) for b in dict.fromkeys(self._runs(budgets))}
        self.results = [done[budget] for budget in self._runs(budgets)]
        found = [call.found(*pair) for pair in zip(self.results, budgets, strict=True)]
        raw, clipped = ([call.outward(one[at]) for one in found] for at in (0, 1))
        hits = [one[2] for one in found]
        if several:
            return raw, clipped, call.restored(torch.stack(hits))
        return raw[0], clipped[0], call.restored(hits[0])

    def repeat(self, times: int) -> FoolboxAttack:
        """The attack up to ``times`` times, each with other random numbers, until one succeeds."""
        if not isinstance(self.attack, SparseAttack):
            raise InputError(f"{self.attack.label} is several searches already: repeat one of them")
        again = Restarts(self.attack, times)
        return FoolboxAttack(again, self.output, self.data_format, self.seed, self.batch_size)

    def __repr__(self) -> str:
        return f"FoolboxAttack({self.attack!r})"

    def _budget(self, epsilon: Any) -> int:
        """How many pixels an epsilon stands for."""
        if epsilon is None:
            return self._most
        pixels = in_pixels("epsilon", epsilon)
        if isinstance(self.attack, Minimal) and pixels > self._most:
            raise InputError(
                f"epsilon is {pixels}, but {self.attack.label} looks for {self._most} pixels at "
                f"most: give it an attack with more pixels"
            )
        return pixels

    def _runs(self, budgets: list[int]) -> list[int]:
        """The budget of the run that answers for each; one that looks for few answers for all."""
        return [self._most] * len(budgets) if isinstance(self.attack, Minimal) else budgets

    @property
    def _most(self) -> int:
        most: int = self.attack.pixels  # type: ignore[attr-defined]  # all attacks have it
        return most

    def _attacked(self, call: _Call, pixels: int, starts: Tensor | None) -> AttackResult:
        attack = with_pixels(self.attack, pixels)
        case = Case(attack, call.victim, call.images, starts, self.seed, self.batch_size)
        return case.reaching(call.aims) if call.targeted else case.leaving(call.aims)


@dataclass(frozen=True)
class _Call:
    """What one call was given, in both worlds.

    Attributes:
        restored: makes of a tensor what the caller works with.
        theirs: the caller's images, as a torch tensor.
        images: the same as brusle has them.
        layout: how to get there and back.
        victim: the model.
        aims: labels, or targets.
        targeted: which of the two.
    """

    restored: Any
    theirs: Tensor
    images: Tensor
    layout: Layout
    victim: Victim
    aims: Tensor
    targeted: bool

    @classmethod
    def of(cls, attack: FoolboxAttack, model: Any, inputs: Any, criterion: Any) -> _Call:
        """Check what was given and bring it into our form."""
        if not isinstance(model, _fb.models.Model):
            raise InputError(
                f"{type(model).__name__} is no Foolbox model: give one, as in "
                f"foolbox.PyTorchModel(net, bounds=(0, 1))"
            )
        wrapped, restore = _ep.astensor_(inputs)
        theirs = _as_torch(wrapped)
        low, high = map(float, model.bounds)
        layout = Layout(low, high, _channels_last(attack, model))
        aims, targeted = _aims(criterion)

        def restored(tensor: Tensor) -> Any:
            return restore(_ep.from_numpy(wrapped, tensor.cpu().numpy()))

        return cls(
            restored,
            theirs,
            layout.inward(theirs),
            layout,
            _victim(model, wrapped, theirs, layout, attack.output),
            aims,
            targeted,
        )

    def inward(self, images: Any) -> Tensor:
        """Other images of the caller as brusle has them."""
        return self.layout.inward(_as_torch(_ep.astensor(images)))

    def found(self, result: AttackResult, pixels: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best images, those of them that keep to ``pixels``, and where the goal is reached."""
        clean, few = result.problems.images, result.pixels <= pixels
        kept = torch.where(few[:, None, None, None], result.images, clean)
        hits = (result.success & few) | reached_at_once(result, self.targeted)
        return result.images, kept, hits

    def outward(self, images: Tensor) -> Any:
        """Images of brusle as the caller works with them."""
        clean = self.images.cpu().float()
        return self.restored(self.layout.put_back(self.theirs, clean, images))


def _as_torch(tensor: Any) -> Tensor:
    """What an EagerPy tensor holds."""
    if isinstance(tensor, _ep.PyTorchTensor):
        raw: Tensor = tensor.raw
        return raw.detach()
    return torch.tensor(tensor.numpy())


def _channels_last(attack: FoolboxAttack, model: Any) -> bool:
    order = getattr(model, "data_format", None) or attack.data_format
    if order is None:
        raise InputError(
            f"{type(model).__name__} does not say where its channels are: give "
            f"brusle.interop.foolbox(attack, data_format='channels_first') or 'channels_last'"
        )
    return _ORDERS[order]


def _aims(criterion: Any) -> tuple[Tensor, bool]:
    """The labels that a criterion is about, and whether they are to be reached."""
    if not isinstance(criterion, _fb.criteria.Criterion):
        criterion = _fb.criteria.Misclassification(criterion)
    # not their subclasses, which may mean something else
    if type(criterion) is _fb.criteria.Misclassification:
        return _as_torch(criterion.labels), False
    if type(criterion) is _fb.criteria.TargetedMisclassification:
        return _as_torch(criterion.target_classes), True
    raise InputError(
        f"the criterion {type(criterion).__name__} is none that brusle knows: give labels, "
        f"foolbox.criteria.Misclassification or TargetedMisclassification"
    )


def _victim(model: Any, inputs: Any, theirs: Tensor, layout: Layout, output: Output) -> Victim:
    """The Foolbox model, asked through its own call: preprocessing and wrappers are its own."""
    in_torch = isinstance(inputs, _ep.PyTorchTensor)

    def scores(images: Tensor) -> Tensor:
        handed = layout.outward(images).to(theirs.dtype)
        if in_torch:
            answer: Tensor = model(handed)
            return answer
        return torch.tensor(model(_ep.from_numpy(inputs, handed.cpu().numpy())).numpy())

    return wrap(
        scores,
        output=output,
        device=theirs.device,
        name=type(model).__name__,
        differentiable=in_torch and not isinstance(model, _fb.models.NumPyModel),
    )
