"""What a store says about its run: written down by every session before its first attack."""

from __future__ import annotations

import time
from collections.abc import Sequence

from brusle.defences import taken_apart
from brusle.errors import DataError
from brusle.evaluation.record import About, Session, StoredTraits
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.running.provenance import provenance
from brusle.evaluation.running.workload import Workload
from brusle.evaluation.storing.store import Store
from brusle.search import Attack
from brusle.session import notes_on
from brusle.version import RESULTS, __version__
from brusle.victim import Victim, traits
from brusle.victims.fingerprints import fingerprint, notes_on_weights


def introduce(
    store: Store,
    plan: Plan,
    victim: Victim,
    attacks: Sequence[Attack],
    workload: Workload,
    until: Sequence[str] = (),
) -> None:
    """Write down what this session is about; refuse it if results would mix.

    Images that are attacked ``until`` something is decided are written down when their turn comes.
    """
    before, now = store.about(), _about(plan, victim, attacks, workload, until)
    about = now if before is None else _continued(before, now)
    if not until:
        store.add_images(workload.manifest.known)
    store.write_about(about)


def note_changed_weights(store: Store, victim: Victim) -> None:
    """A module that learns while it answers is another one in the end."""
    about = store.about()
    if about is None or fingerprint(victim) == about.weights:
        return
    note = (
        f"the weights of {victim.name} changed while it was attacked: rows are of different "
        f"weights, and another order or batch size may give others"
    )
    notes = tuple(dict.fromkeys([*about.notes, note]))
    store.write_about(about.model_copy(update={"notes": notes}))


def _about(
    plan: Plan,
    victim: Victim,
    attacks: Sequence[Attack],
    workload: Workload,
    until: Sequence[str],
) -> About:
    behind, defences = taken_apart(victim)
    weights = fingerprint(victim)
    notes = [note for attack in attacks for note in notes_on(attack, victim)]
    session = Session(
        began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        plan=plan.model_dump(mode="json"),
        pairs=workload.manifest.digest,
        provenance=provenance(victim.device),
        until=tuple(until),
    )
    return About(
        brusle=__version__,
        results=RESULTS,
        victim=behind.name,
        defences=defences,
        weights=weights,
        data=workload.manifest.data,
        traits=StoredTraits.of(victim),
        shape=workload.shape,
        classes=tuple(map(str, workload.source.classes)),
        labels_from="victim" if workload.manifest.vocabulary else "data",
        randomised=bool(traits(victim).randomised),
        notes=tuple(dict.fromkeys([*notes, *notes_on_weights(weights)])),
        sessions=(session,),
    )


def _continued(before: About, now: About) -> About:
    """What both sessions say together; raises if their results must not be mixed."""
    same = {
        "victim": (before.defended_victim, now.defended_victim),
        "weights": (before.weights, now.weights),
        "data": (before.data, now.data),
        "labels from": (before.labels_from, now.labels_from),
    }
    if before.results != now.results:
        raise DataError(
            f"the run folder holds results of brusle {before.brusle}, which gets other rows "
            f"from the same seed than this version: choose another --out"
        )
    for name, (old, new) in same.items():
        if old != new:
            raise DataError(
                f"the run folder holds results of {name} {old}, and this is {new}: "
                f"choose another --out"
            )
    return now.model_copy(
        update={
            "victim": before.victim,  # in a replay, nobody knows any more what is a defence
            "defences": before.defences,
            "vocabulary": before.vocabulary,
            "notes": tuple(dict.fromkeys([*before.notes, *now.notes])),
            "warnings": before.warnings,
            "sessions": (*before.sessions, *now.sessions),
        }
    )
