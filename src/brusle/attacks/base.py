"""What all attacks share: they are called on a model and arrays, and check their own options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

from brusle.errors import InputError
from brusle.goals import LOSSES, Loss
from brusle.problems import Problems
from brusle.results import AttackResult
from brusle.search import Attack, Needs, Search
from brusle.session import Progress, Session, run

_MOST = 2**40  # sums of a few of these are 64-bit integers


class CallableAttack:
    """What all attacks share, single searches and those that combine several: the call."""

    @property
    def label(self) -> str:
        """The name, with the options that differ from their defaults."""
        options = [
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)  # type: ignore[arg-type]
            if f.name not in ("pixels", "queries") and getattr(self, f.name) != f.default
        ]
        return " ".join([type(self).__name__, *options])

    def __call__(
        self,
        model: Any,
        images: Any,
        labels: Any,
        targets: Any = None,
        *,
        seed: int = 0,
        batch_size: int | None = None,
        device: str = "auto",
        ids: Any = None,
        starts: Any = None,
        eot: int = 1,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> AttackResult:
        """Attack ``images`` and return one result per image.

        Args:
            model: an ``nn.Module`` that returns logits, or a victim from `brusle.load_victim`
                or `brusle.victims.wrap`.
            images: ``(n, c, h, w)`` floats in [0, 1].
            labels: ``(n,)`` true labels.
            targets: ``(n,)`` labels to reach; None for an untargeted attack.
            seed: same seed, same result.
            batch_size: most images in one call of the model; None chooses by image size.
            device: ``"auto"`` (where the victim is), ``"cpu"``, ``"cuda"``, ...
            ids: ``(n,)`` integers that random numbers depend on; a hash of the image if None.
            starts: starting images, for the options that want one.
            eot: answers that are averaged for every candidate, each counted as a query; for
                randomised victims.
            on_progress: called whenever images finish.
        """
        # here and not above: an attack works on any victim and needs to know none
        from brusle.victims import as_victim, default_batch_size

        problems = Problems.make(images, labels, targets, ids, starts)
        self.check(problems)  # type: ignore[attr-defined]
        victim = as_victim(model, device)
        if batch_size is None:
            batch_size = default_batch_size(problems.shape, victim.device)
        return run(
            self,  # type: ignore[arg-type]
            victim,
            problems,
            seed=seed,
            batch_size=batch_size,
            eot=eot,
            on_progress=on_progress,
        )


class AnyAttack(Attack, Protocol):
    """An attack as an evaluation sees it: a single search, or several."""

    @property
    def label(self) -> str:
        """The name, for tables."""

    def wants_start(self, targeted: bool) -> bool:
        """Whether an evaluation should give ``starts``."""


@dataclass(frozen=True)
class SparseAttack(CallableAttack):
    """An attack on at most ``pixels`` pixels with at most ``queries`` queries per image.

    Instances hold hyper-parameters and nothing else; all data goes into the call.
    """

    pixels: int
    queries: int = 500

    def __post_init__(self) -> None:
        require_integer("pixels", self.pixels, least=1)
        require_integer("queries", self.queries, least=1)

    @property
    def shortest(self) -> int:
        """It is one search."""
        return self.queries

    @property
    def returns_last(self) -> bool:
        """Whether a failure returns the last candidate instead of the best."""
        return False

    @property
    def checks_initial(self) -> bool:
        """Whether a success among the initial queries ends the attack."""
        return True

    @property
    def needs(self) -> Needs:
        """What the victim must give: labels, scores, or gradients as well."""
        return "scores"

    @property
    def dense(self) -> bool:
        """Whether candidates are whole images and not edits of a few pixels."""
        return False

    @property
    def shrinks(self) -> bool:
        """Whether candidates may have more pixels than the budget, on the way to fewer."""
        return False

    @property
    def needs_start(self) -> bool:
        """Whether the search begins at an adversarial image, whatever its distance."""
        return False

    def wants_start(self, targeted: bool) -> bool:
        """Whether an evaluation should give ``starts``.

        An untargeted attack that begins at an adversarial image finds one in noise by itself,
        which is nearer than an image of another class would be.
        """
        return self.needs_start and targeted

    def loss_for(self, targeted: bool) -> Loss:
        """The loss that the search follows."""
        raise NotImplementedError

    def check(self, problems: Problems) -> None:
        """Raise if the options do not fit the images."""
        _, h, w = problems.shape
        if self.pixels > h * w:
            raise InputError(
                f"pixels is {self.pixels}, but an image of {h} x {w} has {h * w}: choose fewer"
            )
        if self.needs_start and problems.targets is not None and problems.starts is None:
            raise InputError(
                f"{type(self).__name__} starts at an image of the target class: give starts=, one "
                f"per image (brusle attack --start FILE; brusle evaluate takes them from the data)"
            )

    def conduct(self, session: Session) -> None:
        """A plain attack is one search, and what it finds is the result."""
        session.search(self, on_finished=session.conclude)

    def start(self, problems: Problems, seed: int, restart: int) -> Search:
        """Begin a search on ``problems``."""
        raise NotImplementedError


@dataclass(frozen=True)
class WalkingAttack(SparseAttack):
    """An attack that comes from above: whole images, with fewer and fewer changed pixels."""

    @property
    def dense(self) -> bool:
        """Candidates are whole images."""
        return True

    @property
    def shrinks(self) -> bool:
        """The number of changed pixels falls towards the budget."""
        return True


@dataclass(frozen=True)
class DecisionAttack(WalkingAttack):
    """A walk from an adversarial image towards the original, by labels alone."""

    @property
    def needs(self) -> Needs:
        """The label is enough."""
        return "labels"

    @property
    def needs_start(self) -> bool:
        """The walk begins at an adversarial image."""
        return True

    def loss_for(self, targeted: bool) -> Loss:
        """No loss is followed; this one is as good as any."""
        return "margin"


def require_integer(name: str, value: object, least: int) -> None:
    """Raise unless ``value`` is an integer of at least ``least`` that can be counted to."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} is {value!r}: it must be an integer of at least {least}")
    if value > _MOST:
        raise InputError(f"{name} is {value}: the most is {_MOST}")


def require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise InputError(f"{name} is {value!r}: choose from {', '.join(choices)}")


LossOption = Literal["auto", "ce", "margin", "logit-margin"]
LOSS_OPTIONS = ("auto", *LOSSES)


def choose_loss(option: LossOption, targeted: bool) -> Loss:
    """The paper's choice for ``"auto"``: cross-entropy if targeted, else margin of softmax."""
    if option == "auto":
        return "ce" if targeted else "margin"
    return option
