"""`explain`: of a run, a run folder, or what an attack returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from brusle.data import Data
from brusle.errors import BrusleError, InputError
from brusle.evaluation.storing.choosing import Chosen, choose, few
from brusle.evaluation.storing.opening import put_before, victim_of
from brusle.evaluation.storing.runs import Run
from brusle.explaining.asking import AUTO, Looking, Said, Wish, ask
from brusle.explaining.cases import Case, number_of
from brusle.explaining.explanation import Explanation
from brusle.explaining.synthetic import synthetic_of
from brusle.results import AttackResult
from brusle.terms import Terms
from brusle.victim import Victim, traits
from brusle.victims import as_victim, timed

_NO_TRACE = (
    "no trace was kept, so how the search went is left out: take --trace (in Python trace=True), "
    "for stored attacks with another --out"
)


def explain(
    subject: Run | AttackResult | str | Path,
    victim: Any = None,
    *,
    image: int | str | None = None,
    attack: Any = None,
    setting: int | None = None,
    target: int | None = None,
    look: Looking = "auto",
    layer: str | None = None,
    data: Data | None = None,
    device: str = "auto",
    classes: Sequence[str] | None = None,
) -> Explanation:
    """What happened to one image, as arrays and as a figure.

    Args:
        subject: a run, a run folder, or what an attack returned.
        victim: who was attacked, as `brusle.evaluate` takes it. None opens what a run names, if
            that runs no code of others; of a result, where the victim looks is then left out.
        image: its name or, of a result, its number; None chooses one that was fooled.
        attack: of a run, the name of an attack; of a result the attack itself, whose synthetic
            image can then be drawn.
        setting: of a run, the number of a setting.
        target: of a run, the label to reach.
        look: how to look, as in `brusle.looking.look`, or ``"none"``. What may cost something is
            only done if it is asked for by name.
        layer: for GradCAM, the name of a layer.
        data: of a run, where the original images are, if not where it says.
        device: where the victim runs.
        classes: of a result, names of the classes; None takes those of the victim.
    """
    wish = Wish(look, layer)
    if isinstance(subject, AttackResult):
        asked = None if victim is None else as_victim(victim, device)
        names = _names(asked) if classes is None else classes
        case = Case.fresh(subject, number_of(subject, image), names, attack)
        return explained(case, asked, wish)
    run = subject if isinstance(subject, Run) else Run.open(subject, data)
    with nullcontext() if run is subject else run.store:
        chosen = choose(run, [] if image is None else [str(image)], attack, setting, target)
        one = next(iter(few(run, chosen, 1)), chosen[0])
        return next(explanations(run, [one], victim, wish, device=device))


def explanations(
    run: Run,
    chosen: Sequence[Chosen],
    victim: Any = None,
    wish: Wish = AUTO,
    *,
    defences: Sequence[str] | None = None,
    device: str = "auto",
    timeout: float | None = None,
    terms: Terms | None = None,
) -> Iterator[Explanation]:
    """Several of a run, one after the other; the victim is opened once.

    Args:
        run: the run.
        chosen: which.
        victim: as in `explain`.
        wish: how to look.
        defences: defences to put before a victim that is opened by name, instead of the run's.
        device: where the victim runs.
        timeout: most seconds that one call of the victim may take.
        terms: on which terms a service is asked.
    """
    opened: Victim | None = None
    note = ""
    if wish.how != "none" or victim is not None:
        try:
            opened = timed(victim_of(run, victim, device, defences, terms), timeout)
            put_before(run, opened)
        except BrusleError as error:
            if victim is not None or wish.chosen or wish.layer is not None:
                raise
            opened, note = None, f"the victim is not asked where it looks: {error}"
    for one in chosen:
        yield explained(Case.stored(run, one), opened, wish, run.victim, note)


def explained(
    case: Case, victim: Victim | None, wish: Wish, name: str = "", note: str = ""
) -> Explanation:
    """Put together what is known of a case.

    Args:
        case: what is explained.
        victim: who can be asked; None is nobody.
        wish: how to look.
        name: of the victim, if it is not there.
        note: what else to tell people.
    """
    if victim is None and (wish.chosen or wish.layer is not None):
        raise InputError("who looks? Give the victim, or look='none'")
    said = Said() if victim is None else ask(victim, case, wish)
    synthetic, missing = synthetic_of(case)
    trace = case.trace
    untraced = _NO_TRACE if trace is None and case.queries else ""
    shrinks = case.attack is not None and case.attack.behaviour.shrinks
    return Explanation(
        case.name,
        case.title,
        victim.name if victim is not None else name,
        case.status,
        case.queries,
        case.limit,
        case.label,
        case.target,
        case.labels,
        case.classes,
        case.original.numpy(),
        case.adversarial.cpu().numpy(),
        case.tops or said.tops,
        trace,
        "changed pixels" if shrinks else "loss",
        None if synthetic is None else synthetic.image,
        None if synthetic is None else synthetic.dissimilarity,
        said.look,
        said.asked,
        tuple(filter(None, (*said.notes, note, missing, untraced))),
    )


def _names(victim: Victim | None) -> Sequence[str]:
    if victim is None:
        return ()
    said = traits(victim)
    return said.classes or (said.vocabulary.names if said.vocabulary else ())
