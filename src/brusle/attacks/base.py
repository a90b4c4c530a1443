"""What all attacks share: they are called on a model and arrays, and check their own options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, cast

from brusle.adapting import adapted
from brusle.attacks.options import Count, check_options
from brusle.batching import default_batch_size
from brusle.errors import InputError
from brusle.outcomes import Success
from brusle.problems import Problems
from brusle.results import AttackResult
from brusle.scores import Loss, Meaning
from brusle.search import Attack, Behaviour, Round, Search
from brusle.session import Progress, Session, run
from brusle.tracing import Improvement

# walks from an adversarial image towards the original, by labels alone
DECISION_BASED = Behaviour(needs="labels", dense=True, shrinks=True, needs_start=True)


@dataclass(frozen=True)
class BaseAttack:
    """Hyper-parameters that are checked, and the call; be it one search or several.

    Subclasses are frozen dataclasses that also have what `brusle.search.Attack` wants.
    """

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def label(self) -> str:
        """The name, with the options that differ from their defaults."""
        options = [
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)
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
        success: Success = "top1",
        on_progress: Callable[[Progress], None] | None = None,
        on_round: Callable[[Round], None] | None = None,
        trace: bool = False,
        on_improved: Callable[[int, Improvement], None] | None = None,
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
            success: what counts as one where the victim gives lists of labels: ``"top1"`` (the
                target is on top, or the label is not), ``"absent"`` (the label has left the list)
                or ``"new"`` (what is on top was not in the list of the clean image).
            on_progress: called whenever images finish.
            on_round: called with what was asked and answered, round by round.
            trace: keep what the search finds on its way, in ``traces`` of the result.
            on_improved: called with the number of an image and each improvement of its trace as it
                is found, the clean image first.
        """
        attack = cast(Attack, self)
        problems = Problems.make(images, labels, targets, ids, starts)
        attack.check(problems)
        victim = adapted(model, device)
        if batch_size is None:
            batch_size = default_batch_size(problems.shape, victim.device)
        return run(
            attack,
            victim,
            problems,
            seed=seed,
            batch_size=batch_size,
            eot=eot,
            success=success,
            on_progress=on_progress,
            on_round=on_round,
            trace=trace,
            on_improved=on_improved,
        )


@dataclass(frozen=True)
class SparseAttack(BaseAttack):
    """One search, on at most ``pixels`` pixels with at most ``queries`` queries per image.

    Instances hold hyper-parameters and nothing else; all data goes into the call. A subclass has a
    `start`, and says where it differs from the usual `behaviour` and loss.
    """

    pixels: Count
    queries: Count = 500

    @property
    def shortest(self) -> int:
        """It is one search."""
        return self.queries

    @property
    def behaviour(self) -> Behaviour:
        """What the loop must know of it."""
        return Behaviour()

    def wants_start(self, targeted: bool) -> bool:
        """Whether an evaluation should give ``starts``.

        An untargeted attack that begins at an adversarial image finds one in noise by itself,
        which is nearer than an image of another class would be.
        """
        return self.behaviour.needs_start and targeted

    def loss_for(self, targeted: bool, meaning: Meaning) -> Loss:
        """The loss that the search follows; where it follows none, one is as good as any."""
        return meaning.loss("auto", "margin")

    def check(self, problems: Problems) -> None:
        """Raise if the options do not fit the images."""
        _, h, w = problems.shape
        if self.pixels > h * w:
            raise InputError(
                f"pixels is {self.pixels}, but an image of {h} x {w} has {h * w}: choose fewer"
            )
        needs_start = self.behaviour.needs_start
        if needs_start and problems.targets is not None and problems.starts is None:
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
