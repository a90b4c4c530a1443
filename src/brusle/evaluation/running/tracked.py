"""What a run has stored is logged to trackers, whatever ends it; and what they say ends no run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from brusle.errors import BrusleError, first_line
from brusle.evaluation.running.first_look import OnWarning
from brusle.evaluation.storing.runs import Run
from brusle.finishing import Tracker


@contextmanager
def logged(trackers: Sequence[Tracker], run: Run, on_warning: OnWarning) -> Iterator[list[str]]:
    """Log ``run`` when this ends, also by an error or Ctrl-C, with all that is stored then.

    Args:
        trackers: where to.
        run: all that the store holds; nothing is logged if that is nothing.
        on_warning: called with the reason if a tracker fails: the run is as it is without it.

    Yields:
        What the trackers say in the end, a line each; it is empty until then.
    """
    said: list[str] = []
    try:
        yield said
    except BaseException as error:
        for line in _log(trackers, run, on_warning):
            error.add_note(line)
        raise
    said += _log(trackers, run, on_warning)


def _log(trackers: Sequence[Tracker], run: Run, on_warning: OnWarning) -> list[str]:
    """What the trackers say that have taken the run, in a line each."""
    said: list[str] = []
    if not any(run.store.counts().values()):
        return said
    for tracker in trackers:
        try:
            said.append(tracker.log(run).told())
        except Exception as error:  # of any package, and of disks: nothing is lost by it
            reason = str(error) if isinstance(error, BrusleError) else first_line(error)
            on_warning(f"{reason} (the run is stored, and `brusle log` can log it later)")
    return said
