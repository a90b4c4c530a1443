"""What an evaluation takes, said before anything is asked: queries, time, and money."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brusle.errors import DataError
from brusle.evaluation.record import Setting
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.running.runner import plan_settings, run_folder
from brusle.evaluation.running.victim import VictimSpec, terms_of
from brusle.evaluation.running.workload import Workload
from brusle.evaluation.statistics import attacked
from brusle.evaluation.storing.store import FILE, Store
from brusle.outcomes import share
from brusle.terms import Terms
from brusle.verify import draws_of
from brusle.victim import Victim, traits

LATENCY = 0.2  # seconds of one call, where nobody has measured it
USUAL = 0.5  # share of its limit that an attack needs, where nothing is stored


@dataclass(frozen=True)
class Effort:
    """What one case takes.

    Attributes:
        queries: answers of the victim.
        seconds: how long they take; None if nobody can say.
        money: what they cost; None without a price.
    """

    queries: int
    seconds: float | None
    money: float | None

    def told(self) -> str:
        """For people."""
        time = "" if self.seconds is None else f", {_duration(self.seconds)}"
        money = "" if self.money is None else f", {self.money:.2f}"
        return f"{self.queries} queries{time}{money}"


@dataclass(frozen=True)
class Estimate:
    """What an evaluation takes.

    Attributes:
        victim: its name.
        folder: where results would go.
        images: different ones.
        attacks: problems of all settings that are not stored yet.
        stored: those that are.
        worst: if every attack spends its limit and then succeeds.
        expected: see ``basis``.
        basis: what the expectation rests on.
        notes: what else to know.
    """

    victim: str
    folder: str
    images: int
    attacks: int
    stored: int
    worst: Effort
    expected: Effort
    basis: str
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        done = f", {self.stored} more are stored in {self.folder}" if self.stored else ""
        return [
            f"{self.victim}: {self.attacks} attacks on {self.images} images{done}",
            f"worst case: {self.worst.told()}",
            f"expected:   {self.expected.told()} ({self.basis})",
            *self.notes,
            "nothing was asked",
        ]


def estimate(
    plan: Plan,
    out: str | Path | None = "auto",
    *,
    device: str = "auto",
    terms: Terms | None = None,
    latency: float = LATENCY,
    until: bool = False,
) -> Estimate:
    """What ``plan`` takes; the victim is opened and not asked.

    Args:
        plan: the plan.
        out: where results would go: what is there already is not asked again.
        device: where the victim would run.
        terms: on which terms a service would be asked.
        latency: seconds of one call of a service.
        until: it ends when a gate is decided, which may be long before all images are attacked.
    """
    victim = VictimSpec(plan.victim, device, plan.defences, terms=terms).open()
    workload = Workload.of(plan, victim)
    folder = run_folder(out, plan, victim, workload, until=until)
    settings = [setting for setting, _ in plan_settings(plan, victim)]
    counts = {s: len(workload.list_of(s.goal)) for s in settings}
    spent = _stored_queries(folder)
    left = {s: max(0, n - len(spent.get(s.key, ()))) for s, n in counts.items()}
    remote, draws = terms_of(victim) is not None, draws_of(traits(victim).randomised)
    images = len(workload.manifest.entries)
    clean = images if remote else sum(left.values())  # a journal has every clean image once
    worst = clean + sum(n * (s.queries + draws) for s, n in left.items())
    expected = clean + sum(n * (_usual(s, spent.get(s.key, ())) + draws) for s, n in left.items())
    known = any(spent.values())
    share_text = f"if an attack needs {USUAL:.0%} of its limit on average"
    return Estimate(
        victim.name,
        str(folder or ""),
        images,
        sum(left.values()),
        sum(counts.values()) - sum(left.values()),
        effort(victim, worst, latency),
        effort(victim, round(expected), latency),
        "by the rows that are stored" if known else share_text,
        tuple(_notes(victim, worst, latency)),
    )


def effort(victim: Victim, queries: int, latency: float) -> Effort:
    """Time and money of so many queries, of a service that takes ``latency`` seconds for a call."""
    terms = terms_of(victim)
    if terms is None:
        return Effort(queries, None, None)
    canaries = queries // terms.canary if terms.canary else 0
    sent = queries + canaries
    pace = terms.concurrency / latency
    if terms.rate is not None:
        pace = min(pace, terms.rate.images / terms.rate.seconds)
    return Effort(queries, sent / pace, sent * terms.price if terms.price else None)


def _notes(victim: Victim, worst: int, latency: float) -> list[str]:
    terms = terms_of(victim)
    if terms is None:
        return ["how long that takes is measured by `brusle check`"]
    said = [f"time is for calls of {latency:g} s, {terms.concurrency} at once; retries come on top"]
    if not terms.price:
        said.append("no price is given (--price), so money is not counted")
    if terms.most is not None and terms.most < worst:
        said.append(f"--budget and --requests allow {terms.most} images: the run may stop there")
    return said


def _usual(setting: Setting, queries: Sequence[int]) -> float:
    """Queries of one more attack."""
    return share(sum(queries), len(queries)) if queries else USUAL * setting.queries


def _stored_queries(folder: Path | None) -> dict[str, list[int]]:
    """Of each setting in a run folder, the queries of the attacks that are stored."""
    if folder is None or not (folder / FILE).exists():
        return {}
    with suppress(DataError), Store.read(folder) as store:
        return {
            key: [row.queries for row in attacked(store.rows(setting.number))]
            for key, setting in store.settings_by_key().items()
        }
    return {}


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
