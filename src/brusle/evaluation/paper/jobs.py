"""What is run of a preset: its parts, each with a victim and data that are here."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brusle.data.stored import cache_dir
from brusle.errors import InputError
from brusle.evaluation.paper.presets import Part, Preset
from brusle.evaluation.paper.stand_in import name_of, quickest, stand_in
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.running.victim import VictimSpec
from brusle.terms import Terms
from brusle.version import RESULTS
from brusle.victim import Victim
from brusle.victims import known_victims
from brusle.victims.fingerprints import fingerprint


@dataclass(frozen=True)
class Job:
    """A part of a preset, ready to run.

    Attributes:
        part: the part, scaled down as asked.
        victim: name of the victim.
        data: name of the data.
        note: what the victim is beside the paper's model.
        served: name of the model behind the service that stands in; None if there is none.
    """

    part: Part
    victim: str
    data: str
    note: str
    served: str | None = None

    @property
    def plans(self) -> tuple[Plan, ...]:
        """What it runs."""
        return self.part.plans(self.victim, self.data)

    @contextmanager
    def opened(
        self, device: str, timeout: float | None = None, terms: Terms | None = None
    ) -> Iterator[Victim]:
        """The victim, behind its defences; a service that stands in lasts as long as the block."""
        spec = VictimSpec(self.victim, device, self.part.defences, timeout, terms)
        if self.served is None or self.part.service is None:
            yield spec.open()
            return
        model = replace(spec, victim=self.served, terms=None).open()
        asked = replace(spec, defences=())
        with stand_in(model, self.part.service, self.victim, asked) as victim:
            yield victim


def jobs(
    wanted: Preset,
    victim: str | None = None,
    part: str | None = None,
    data: str | None = None,
    **scale: Any,
) -> tuple[list[Job], tuple[str, ...]]:
    """What `reproduce` runs with these arguments, and why it leaves other parts out.

    Args:
        wanted: the preset.
        victim: as in `reproduce`.
        part: likewise.
        data: likewise.
        **scale: arguments of `Part.scaled`.
    """
    parts, left_out = _parts(wanted, victim, part)
    source = data or _default_data(wanted)
    todo: list[Job] = []
    for one in parts:
        job = _job(one.scaled(**scale), victim, source)
        same = next((other for other in todo if other.plans == job.plans), None)
        if same is None:
            todo.append(job)
        else:
            stand_in = f"its stand-in is that of {same.part.name}"
            left_out.append(f"{one.name}: {stand_in}; give {_own(one)}")
    return todo, tuple(left_out)


def default_folder(wanted: Preset, todo: Sequence[Job], victims: Sequence[Victim]) -> Path:
    """A run folder whose name follows from what is run, so that the same request goes on.

    Other weights under the same name, or another version of brusle, are another folder.
    """
    plans = [plan.digest for job in todo for plan in job.plans]
    facts = " ".join([*plans, *map(fingerprint, victims), str(RESULTS)])
    return Path("runs") / f"{wanted.name}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"


def _parts(wanted: Preset, victim: str | None, part: str | None) -> tuple[list[Part], list[str]]:
    """The parts that there is a victim for, and what is to be said about the others."""
    parts = wanted.parts if part is None else (wanted.part(part),)
    if victim is not None:
        others = [one.name for one in parts[1:]]
        return [parts[0]], [f"{name}: --victim is for one part; see --part" for name in others]
    here = [one for one in parts if one.victim]
    missing = [one for one in parts if not one.victim]
    if not here:
        raise InputError(
            f"no stand-in for the paper's {parts[0].model} is bundled: give --victim; the paper's "
            f"own would be {shlex.quote(parts[0].own)}"
        )
    none = "no stand-in for the paper's"
    return here, [f"{one.name}: {none} {one.model} is bundled; give {_own(one)}" for one in missing]


def _job(part: Part, victim: str | None, data: str) -> Job:
    if victim is not None:
        note = f"{victim}{part.behind}, as asked, in the place of the paper's {part.model}"
        return Job(part, victim, data, note)
    assert part.victim is not None  # `jobs` has left the others out
    if part.service is not None:
        return _served_job(part, part.service, quickest(part.victim), data)
    about = known_victims().get(part.victim)
    note = (
        f"the paper's {part.model} is not here; stand-in {part.victim}"
        f"{f' ({about})' if about else ''}{part.behind}. If you have it: {_own(part)}"
    )
    return Job(part, part.victim, data, note)


def _served_job(part: Part, service: str, model: str, data: str) -> Job:
    note = (
        f"the paper's {part.model} is not asked; stand-in {model} behind a server on this machine "
        f"that answers as it does, with lists of labels and their confidences. If you may test the "
        f"service itself: {_own(part)} --i-am-authorised, with --rate, --price and --budget"
    )
    return Job(part, name_of(service, model), data, note, model)


def _own(part: Part) -> str:
    """The options that attack the paper's own model."""
    return f"--part {part.name} --victim {shlex.quote(part.own)}"


def _default_data(wanted: Preset) -> str:
    if wanted.dataset == "CIFAR-10":
        return "cifar10:test" if (cache_dir() / "cifar10").is_dir() else "sample"
    if wanted.dataset == "STL-10":
        return "stl10:test"
    photographs = wanted.dataset.removesuffix(" photographs")
    raise InputError(
        f"{wanted.name} needs {photographs} photographs, which brusle has not: give --data "
        f"imagenet:DIR (class folders, or a labels.csv)"
    )
