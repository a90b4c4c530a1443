"""For test suites: a model that is not robust enough fails a test.

    import brusle.testing

    def test_the_release_is_robust():
        brusle.testing.assert_robust(net, (images, labels), min_robust=60, pixels=5, queries=300)

With pytest, `assert_robust` is also a fixture of that name, which needs no import.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from brusle import defaults

if TYPE_CHECKING:
    from brusle.data import Data
    from brusle.evaluation.gating import Verdict
    from brusle.evaluation.record import GoalName
    from brusle.search import Attack


def assert_robust(
    victim: Any,
    data: Data = defaults.DATA,
    *,
    min_robust: float,
    pixels: int,
    queries: int = defaults.QUERIES,
    attacks: str | Attack | Sequence[str | Attack] = defaults.ATTACKS,
    goal: GoalName = "untargeted",
    limit: int | None = None,
    confidence: float = 95.0,
    until_decided: bool = True,
    seed: int = 0,
    out: str | Path | None = None,
    **options: Any,
) -> Verdict:
    """Attack a model, and raise unless it is surely robust enough.

    Images are attacked in a random order until it is decided, so that a test of a model that is far
    from the threshold is quick.

    Args:
        victim: a name, an ``nn.Module`` that returns logits, or a victim.
        data: a name, or images and labels.
        min_robust: the robust accuracy must be at least so many percent.
        pixels: most pixels that an attack may change.
        queries: most queries of each attack, per image.
        attacks: by name, or with the same budgets; an image is robust if none of them fools it.
        goal: ``"untargeted"`` or ``"targeted"``.
        limit: most images, evenly over the classes; None takes all.
        confidence: percent: a false pass has a probability of at most 100 minus this, and so has a
            false failure.
        until_decided: stop when it is decided; otherwise all images up to ``limit`` are attacked.
        seed: of the attacks and of the order of the images: the same test says the same again.
        out: a folder to keep the run in, as `brusle.evaluate` writes it.
        **options: others of `brusle.evaluate`: ``defences``, ``batch_size``, ``device``, ...

    Returns:
        What was measured.

    Raises:
        AssertionError: it is not robust enough, or too few images can tell: its text says which,
            and what was measured. A test that cannot tell does not pass.
    """
    from brusle.attacks import make
    from brusle.evaluation import Gate, evaluate
    from brusle.evaluation.gating import At
    from brusle.evaluation.gating.judging import answer

    __tracebackhide__ = True  # pytest shows the test and the message, and not this function
    asked = Gate.of(At(pixels, queries), min_robust, confidence=confidence, goal=goal)
    is_one = isinstance(attacks, str) or not isinstance(attacks, Sequence)
    several = cast("Sequence[str | Attack]", [attacks] if is_one else attacks)
    run = evaluate(
        victim,
        data,
        [make(one, pixels, queries) if isinstance(one, str) else one for one in several],
        goal,
        out,
        limit=limit,
        seed=seed,
        until=asked if until_decided else None,
        on_progress=None,
        **options,
    )
    verdict = answer(run, asked)
    if verdict.result != "pass":
        name = f"{verdict.victim} on {verdict.data}"
        raise AssertionError("\n".join([f"{name}: {verdict.text}", *verdict.lines()[:-1]]))
    return verdict
