"""The victim of a stored run, opened again: if that is harmless, and if it is the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brusle import defences as defence_kinds
from brusle import victims as victim_kinds
from brusle.errors import DataError, InputError
from brusle.evaluation.storing.runs import Run
from brusle.names import require_harmless
from brusle.terms import Terms
from brusle.victim import Victim, traits
from brusle.victims.fingerprints import fingerprint


def victim_of(
    run: Run,
    victim: Any = None,
    device: str = "auto",
    defences: Sequence[str] | None = None,
    terms: Terms | None = None,
) -> Victim:
    """The victim of a run.

    What only the run names is opened if that does no more than read data; see
    `brusle.names.require_harmless`.

    Args:
        run: the run.
        victim: a name instead of the stored one (the run's defences are put before it), or the
            victim itself as `brusle.evaluate` takes it.
        device: where the victim runs.
        defences: defences to put before a victim that is opened by name, instead of the run's.
        terms: on which terms a service is asked.
    """
    if victim is not None and not isinstance(victim, str):
        return victim_kinds.as_victim(victim, device, terms)
    stored, specs = run.about.victim, run.about.defences
    if victim is None and ":" not in stored:
        raise InputError(
            f"the victim of the run, {stored!r}, was made in Python and cannot be opened by name: "
            f"give --victim"
        )
    if victim is None:
        require_harmless("the run", "victim", stored, victim_kinds.risk(stored))
    if defences is None:
        for spec in specs:
            require_harmless("the run", "defence", spec, defence_kinds.risk(spec))
    opened = victim_kinds.load_victim(victim or stored, device, terms)
    return defence_kinds.defend(opened, specs if defences is None else defences)


def put_before(run: Run, victim: Victim) -> None:
    """Let ``victim`` be asked about a run; raise unless it has the weights of the run's.

    Labels that it names get the numbers that they have in the run, and photographs are framed for
    it.
    """
    mine, stored = fingerprint(victim), run.about.weights
    if mine != stored:
        raise DataError(
            f"{victim.name} has weights {mine or 'unknown'}, the run had {stored or 'unknown'}: "
            f"give the victim of the run with --victim"
        )
    vocabulary = traits(victim).vocabulary
    if vocabulary is not None:
        vocabulary.begin(run.about.vocabulary)
    run.framed_for = victim
