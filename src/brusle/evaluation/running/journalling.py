"""What an evaluation of a victim that keeps books does beside attacking it.

Its answers go to the journal in the run folder, what was sent is added up for the session, and the
labels that it names get their numbers from the store, so that rows of all sessions mean the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from brusle.data import Source
from brusle.errors import BrusleError, InputError
from brusle.evaluation.record import Session, Spending
from brusle.evaluation.running.first_look import OnWarning
from brusle.evaluation.running.victim import terms_of
from brusle.evaluation.storing.store import Store
from brusle.terms import Terms
from brusle.victim import Victim, traits
from brusle.victims.recording import Accounts, Recorded, recorded
from brusle.vocabulary import Vocabulary

CHANGED = "service changed"
_COUNTS = ("sent", "answered", "refused", "lost")


@contextmanager
def journalled(
    victim: Victim, folder: Path, store: Store, on_warning: OnWarning
) -> Iterator[Recorded]:
    """``victim`` with the journal of a run folder; what it cost is noted when this is left.

    Args:
        victim: the victim.
        folder: the run folder, whose lock the caller holds.
        store: of the run.
        on_warning: told if the service has changed its model meanwhile.
    """

    def changed(text: str) -> None:
        store.amend(warnings=lambda before: before | {CHANGED: text})
        on_warning(f"{CHANGED}: {text}")

    recording = recorded(victim, folder, on_change=changed)
    before, price = recording.summary(), (terms_of(victim) or Terms()).price
    store.amend(sessions=partial(_with_killed, accounts=before, price=price))
    about = store.about()
    earlier = 0 if about is None else len(about.sessions)
    try:
        yield recording
    finally:
        now = recording.summary()
        counts = {name: getattr(now, name) - getattr(before, name) for name in _COUNTS}
        spending = Spending(**counts, replayed=now.replayed, price=price)
        with suppress(BrusleError):  # the store itself may be what has failed
            store.amend(sessions=partial(_with_spending, earlier=earlier, spending=spending))
        recording.close()


@contextmanager
def continuing(victim: Victim, folder: Path) -> Iterator[Victim]:
    """``victim`` for questions before a session of the run in ``folder``.

    Labels have the numbers that the run gave them, and what is asked of a service is in its
    journal: the session does not ask for it again.
    """
    with Store.write(folder) as store:
        about, vocabulary = store.about(), traits(victim).vocabulary
        if about is not None and vocabulary is not None:
            vocabulary.begin(about.vocabulary)
        if terms_of(victim) is None:
            yield victim
            return
        recording = recorded(victim, folder)
        try:
            yield recording
        finally:
            recording.close()


def share_vocabulary(victim: Victim, store: Store, source: Source) -> None:
    """Number the labels that a victim names as the run did: those of the data first."""
    vocabulary = traits(victim).vocabulary
    if vocabulary is None:
        return
    if not source.classes:
        raise InputError(
            f"{victim.name} answers with names of labels, and {source.name} has none: give data "
            f"with class names (folders, or class_name in labels.csv)"
        )
    about = store.about()
    for names in (about.vocabulary if about is not None else (), source.classes):
        vocabulary.begin(names)


def note_vocabulary(store: Store, vocabulary: Vocabulary) -> None:
    """Write down labels that are new."""
    about = store.about()
    if about is not None and len(about.vocabulary) < len(vocabulary):
        store.amend(vocabulary=vocabulary.names)


def _with_spending(
    sessions: tuple[Session, ...], earlier: int, spending: Spending
) -> tuple[Session, ...]:
    """The session that followed so many earlier ones, if it began at all, has cost that."""
    if len(sessions) == earlier:
        return sessions
    *before, session = sessions
    return (*before, session.model_copy(update={"spending": spending}))


def _with_killed(
    sessions: tuple[Session, ...], accounts: Accounts, price: float
) -> tuple[Session, ...]:
    """A session that was killed could not say what it has cost: what no other session says."""
    if not sessions or sessions[-1].spending is not None:
        return sessions
    others = [session.spending for session in sessions if session.spending is not None]
    counts = {
        name: max(0, getattr(accounts, name) - sum(getattr(other, name) for other in others))
        for name in _COUNTS
    }
    return _with_spending(sessions, 0, Spending(**counts, price=price))
