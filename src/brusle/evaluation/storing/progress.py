"""How far the evaluation in a run folder is; also while it is running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from brusle.evaluation.record import Setting
from brusle.evaluation.statistics import success_rate_of
from brusle.evaluation.storing.store import JustStarting, Retries, Store
from brusle.locking import is_written
from brusle.outcomes import Status


def look(folder: Path) -> dict[str, Any]:
    """What is stored in a run folder, and whether a run is writing to it."""
    writing = is_written(folder)  # first: if it has ended by now, what is read next is final
    try:
        with Store.read(folder) as store:
            about, settings, counts = store.about(), store.settings(), store.counts()
            again = asdict(store.retries())
    except JustStarting:
        writing, about, settings, counts, again = True, None, [], {}, asdict(Retries(0, 0))
    lines = [_setting(setting, counts.get(setting.number, {})) for setting in settings]
    facts = {} if about is None else about.as_dict()
    found = {"run": str(folder), "writing": writing, "about": facts, "settings": lines}
    return found | {"runs_again": again}


def _setting(setting: Setting, counts: Mapping[str, int]) -> dict[str, Any]:
    ordered = {status: counts[status] for status in get_args(Status) if status in counts}
    stored, rate = sum(counts.values()), success_rate_of(counts)
    found = {"stored": stored, "counts": ordered, "asr": rate.as_dict()}
    return {"name": setting.name, **setting.model_dump(), **found}
