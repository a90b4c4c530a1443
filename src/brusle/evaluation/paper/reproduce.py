"""Run a preset and put its numbers beside the paper's."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import brusle
from brusle.attacks import make
from brusle.data.stored import cache_dir
from brusle.defences import defend
from brusle.errors import InputError
from brusle.evaluation.paper.claims import Finding, Reading, check
from brusle.evaluation.paper.presets import (
    OVER_SEEDS,
    Entry,
    Metric,
    Part,
    Preset,
    preset,
    seeds_entry,
)
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.running.provenance import fingerprint
from brusle.evaluation.running.runner import evaluate
from brusle.evaluation.statistics import Rate, attacked, over_seeds, robust_accuracy, success_rate
from brusle.evaluation.statistics.rates import Z95
from brusle.evaluation.storing.manifest import Targets, choose
from brusle.evaluation.storing.store import Row
from brusle.files import write_text
from brusle.search import Attack
from brusle.victim import Victim
from brusle.victims import as_victim, known_victims, timed

FILE = "reproduction.json"
_Setting = tuple[str, int, int, int]  # label of the attack, pixels, queries, seed


@dataclass(frozen=True)
class Job:
    """A part of a preset, ready to run.

    Attributes:
        part: the part, scaled down as asked.
        victim: name of the victim.
        data: name of the data.
        note: what the victim is beside the paper's model.
    """

    part: Part
    victim: str
    data: str
    note: str

    @property
    def plans(self) -> tuple[Plan, ...]:
        """What it runs."""
        return self.part.plans(self.victim, self.data)

    def open(self, device: str) -> Victim:
        """The victim, with its defences."""
        return defend(as_victim(self.victim, device), self.part.defences)


@dataclass(frozen=True)
class Cell:
    """One number of ours beside the paper's, in percent.

    Attributes:
        attack: as the paper calls it.
        variant: as in `brusle.evaluation.paper.results.PaperNumber`.
        pixels: the pixel budget.
        queries: the number of queries.
        metric: likewise.
        ours: our number; NaN if nothing was attacked.
        low: its 95 % interval, see `interval`; None for numbers that have none.
        high: likewise.
        paper: the paper's number; None where it has none.
    """

    attack: str
    variant: str
    pixels: int
    queries: int
    metric: Metric
    ours: float
    low: float | None
    high: float | None
    paper: float | None

    @property
    def outside(self) -> bool:
        """Whether the paper's number lies outside our interval."""
        if self.paper is None or self.low is None or self.high is None:
            return False
        return not self.low <= self.paper <= self.high

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN."""
        ours = None if math.isnan(self.ours) else self.ours
        return asdict(self) | {"ours": ours, "outside": self.outside}


@dataclass(frozen=True)
class Outcome:
    """A part that was run.

    Attributes:
        job: what was run.
        images: how many images, all classified correctly.
        whole: the part as the paper has it.
        pairs: how many attacks that is for each line of the table.
        digest: of the images and targets.
        cells: the numbers.
        findings: what becomes of the claims of the paper's text.
        errors: results that cannot be counted.
        resumed: attacks that were stored before and not run again.
    """

    job: Job
    images: int
    whole: Part
    pairs: int
    digest: str
    cells: tuple[Cell, ...]
    findings: tuple[Finding, ...]
    errors: int
    resumed: int

    @property
    def agreement(self) -> Rate:
        """In how many places of the table the paper's strongest line is ours as well."""
        sign = 1 if self.job.part.metric == "asr" else -1
        places: dict[tuple[int, int], list[Cell]] = {}
        for cell in self.cells:
            if cell.paper is not None and cell.low is not None:
                places.setdefault((cell.pixels, cell.queries), []).append(cell)
        agreed = several = 0
        for cells in places.values():
            most = max(sign * cell.ours for cell in cells)
            strongest = max(cells, key=lambda cell: sign * (cell.paper or 0.0))
            several += len(cells) > 1
            agreed += len(cells) > 1 and sign * strongest.ours == most
        return Rate(agreed, several)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        part = self.job.part
        return {
            "part": part.name,
            "paper_model": part.model,
            "victim": self.job.victim,
            "defences": list(part.defences),
            "data": self.job.data,
            "note": self.job.note,
            "images": self.images,
            "paper_images": self.whole.images,
            "targets": part.targets,
            "paper_targets": self.whole.targets,
            "pairs": self.pairs,
            "digest": self.digest,
            "errors": self.errors,
            "agreement": {"agreed": self.agreement.hits, "places": self.agreement.count},
            "plans": [plan.model_dump(mode="json") for plan in self.job.plans],
            "numbers": [cell.as_dict() for cell in self.cells],
            "claims": [finding.as_dict() for finding in self.findings],
        }


@dataclass(frozen=True)
class Reproduction:
    """A preset that was run.

    Attributes:
        preset: which.
        outcomes: one for each part that was run.
        left_out: why other parts were not.
        folder: where it is written: a run folder for each part, and `FILE`.
        seconds: wall-clock time.
    """

    preset: Preset
    outcomes: tuple[Outcome, ...]
    left_out: tuple[str, ...]
    folder: Path
    seconds: float

    @property
    def errors(self) -> int:
        """Results that cannot be counted."""
        return sum(outcome.errors for outcome in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "preset": self.preset.name,
            "summary": self.preset.summary,
            "place": self.preset.place,
            "brusle": brusle.__version__,
            "seconds": round(self.seconds, 2),
            "left_out": list(self.left_out),
            "parts": [outcome.as_dict() for outcome in self.outcomes],
        }


def reproduce(
    name: str,
    *,
    victim: str | None = None,
    part: str | None = None,
    data: str | None = None,
    limit: int | None = None,
    queries: int | None = None,
    pixels: Sequence[int] = (),
    seed: int = 0,
    targets: Targets | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    on_part: Callable[[Job], None] | None = None,
    **options: Any,
) -> Reproduction:
    """Run a preset and compare its numbers with the paper's.

    Args:
        name: a preset, which is called like its table in the paper.
        victim: instead of the stand-ins; then one part runs, the first or the one named.
        part: run this part only.
        data: instead of the default data.
        limit: most images.
        queries: a lower query limit.
        pixels: other pixel budgets.
        seed: the choice of images and targets, and the attacks, follow from it.
        targets: targets of each image, "all" or a number; None is the paper's, or at most three if
            there is a ``limit``.
        out: a folder; what it holds already is not run again. None is ``runs/`` with a name that
            follows from the plan and the weights.
        device: where the victim runs.
        on_part: called before each part.
        **options: further arguments of `brusle.evaluate`, such as ``batch_size``.
    """
    began = time.monotonic()
    wanted = preset(name)
    scale = {"limit": limit, "queries": queries, "pixels": pixels, "seed": seed, "targets": targets}
    todo, left_out = jobs(wanted, victim, part, data, **scale)
    models = [timed(job.open(device), options.get("timeout")) for job in todo]
    folder = default_folder(wanted, todo, models) if out is None else Path(out)
    outcomes = []
    for job, model in zip(todo, models, strict=True):
        if on_part is not None:
            on_part(job)
        outcomes.append(_run(wanted, job, model, folder, device, options))
    done = Reproduction(wanted, tuple(outcomes), left_out, folder, time.monotonic() - began)
    write_text(folder / FILE, json.dumps(done.as_dict(), indent=2) + "\n")
    return done


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
    if wanted.refused is not None:
        raise InputError(f"{wanted.name} cannot be run: {wanted.refused}")
    parts, left_out = _parts(wanted, victim, part)
    place = data or _default_data(wanted)
    todo: list[Job] = []
    for one in parts:
        job = _job(one.scaled(**scale), victim, place)
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
    facts = " ".join([*plans, *map(fingerprint, victims), brusle.__version__])
    return Path("runs") / f"{wanted.name}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"


def interval(hits: Mapping[str, float], counts: Mapping[str, int]) -> tuple[float, float]:
    """A 95 % interval of the share ``hits / counts``, both given for each image.

    Targets of one image go together: what one of them costs, the others cost as well. So pairs
    count as fewer than they are, by the design effect (the variance between images over that of
    independent pairs). With one pair for each image this is Wilson's interval.
    """
    n = sum(counts.values())
    share = sum(hits.values()) / n if n else math.nan
    if not 0 < share < 1:  # nothing, or no variance to see
        return Rate(round(sum(hits.values())), n).interval
    effect = max(1.0, _variance(hits, counts) * n / (share * (1 - share)))
    return Rate(round(share * n / effect), round(n / effect)).interval


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
    about = known_victims().get(part.victim)
    note = (
        f"the paper's {part.model} is not here; stand-in {part.victim}"
        f"{f' ({about})' if about else ''}{part.behind}. If you have it: {_own(part)}"
    )
    return Job(part, part.victim, data, note)


def _own(part: Part) -> str:
    """The options that attack the paper's own model."""
    return f"--part {part.name} --victim {shlex.quote(part.own)}"


def _default_data(wanted: Preset) -> str:
    if wanted.dataset == "CIFAR-10":
        return "cifar10:test" if (cache_dir() / "cifar10").is_dir() else "sample"
    if wanted.dataset == "STL-10":
        return "stl10:test"
    raise InputError(
        f"{wanted.name} needs {wanted.dataset} photographs, which brusle has not: give --data "
        f"imagenet:DIR (class folders, or a labels.csv)"
    )


def _run(
    wanted: Preset, job: Job, model: Victim, folder: Path, device: str, options: dict[str, Any]
) -> Outcome:
    part, place = job.part, folder / job.part.name
    attacks = [a for plan in job.plans for a in plan.attacks_on(model)[part.goal]]
    manifest = choose(
        job.data,
        model,
        images=part.images,
        targets=part.targets if part.goal == "targeted" else 0,
        seed=part.seeds[0],
        batch_size=options.get("batch_size"),
        with_starts=any(attack.wants_start(part.goal == "targeted") for attack in attacks),
    )
    run = evaluate(
        job.victim,
        job.data,
        list(dict.fromkeys(attacks)),  # two lines of a table may be the same attack
        part.goal,
        place,
        defences=part.defences,
        device=device,
        pairs=manifest,
        seed=part.seeds,
        plan=job.plans[-1].model_dump(mode="json"),
        **options,
    )
    stored = {(s.attack, s.pixels, s.queries, s.seed): run.stored(s) for s in run.settings}
    _, height, width = run.shape
    return Outcome(
        job,
        images=len(manifest.entries),
        whole=wanted.part(part.name),
        pairs=manifest.pairs if part.goal == "targeted" else len(manifest.entries),
        digest=manifest.digest,
        cells=tuple(_cells(wanted, part, stored, height * width)),
        findings=tuple(_findings(part, stored)),
        errors=run.errors,
        resumed=run.resumed,
    )


def _cells(
    wanted: Preset, part: Part, stored: Mapping[_Setting, Sequence[Row]], area: int
) -> Iterator[Cell]:
    for pixels in part.pixels:
        for entry, mark in part.readings():
            runs = [_rows(part, stored, entry, pixels, mark, seed) for seed in part.seeds]
            for line, ours, low, high in _numbers(part, entry, runs, mark, area):
                paper = wanted.paper(part, line, pixels, mark)
                place = (line.paper, line.variant, pixels, mark, part.metric)
                yield Cell(*place, ours, low, high, paper)


def _findings(part: Part, stored: Mapping[_Setting, Sequence[Row]]) -> Iterator[Finding]:
    """Each claim at each of its budgets, and at each mark unless all its lines have their own."""
    entries = {entry.title: entry for entry in part.entries}
    (seed,) = part.seeds if part.claims else (0,)
    for claim in part.claims:
        mine = [entries[title] for title in (claim.line, claim.other) if title is not None]
        for pixels in (p for p in part.pixels if p in (claim.pixels or part.pixels)):
            marks = dict.fromkeys(tuple(e.queries or mark for e in mine) for mark in part.marks)
            for places in marks:
                readings = [
                    Reading(_rows(part, stored, entry, pixels, mark, seed), mark)
                    for entry, mark in zip(mine, places, strict=True)
                ]
                yield check(claim, pixels, *readings)


def _rows(
    part: Part,
    stored: Mapping[_Setting, Sequence[Row]],
    entry: Entry,
    pixels: int,
    mark: int,
    seed: int,
) -> Sequence[Row]:
    """The rows that an entry is read from."""
    return stored[_key(make(entry.attack, pixels, part.limit(entry, mark)), seed)]


def _key(attack: Attack, seed: int) -> _Setting:
    return attack.label, attack.pixels, attack.queries, seed


def _numbers(
    part: Part, entry: Entry, runs: Sequence[Sequence[Row]], mark: int, area: int
) -> Iterator[tuple[Entry, float, float | None, float | None]]:
    """Percentages with their intervals: one, or with several seeds their statistics."""
    value, low, high = _measure([row for rows in runs for row in rows], part.metric, mark, area)
    if len(runs) == 1:
        yield entry, value, low, high
        return
    spread = over_seeds(runs, lambda rows: _measure(rows, part.metric, mark, area)[0])
    for which in OVER_SEEDS:
        line = seeds_entry(entry, len(runs), which)
        ends = (low, high) if which == "mean" else (None, None)
        yield line, getattr(spread, which), *ends


def _measure(
    rows: Sequence[Row], metric: Metric, mark: int, area: int
) -> tuple[float, float, float]:
    """A percentage and its interval."""
    images: dict[str, list[Row]] = {}
    for row in rows:
        images.setdefault(row.image, []).append(row)
    totals = {image: _total(mine, metric, mark, area) for image, mine in images.items()}
    hits = {image: hit for image, (hit, _) in totals.items()}
    counts = {image: count for image, (_, count) in totals.items()}
    n = sum(counts.values())
    value = sum(hits.values()) / n if n else math.nan
    if metric == "mean sparsity":
        half = Z95 * math.sqrt(_variance(hits, counts))
        low, high = max(0.0, value - half), min(1.0, value + half)
    else:
        low, high = interval(hits, counts)
    return 100 * value, 100 * low, 100 * high


def _total(rows: Sequence[Row], metric: Metric, mark: int, area: int) -> tuple[float, int]:
    """What the rows of one image add to a mean, and how many they count as."""
    if metric == "mean sparsity":
        counted = attacked(rows)
        return sum(row.pixels for row in counted) / area, len(counted)
    rate = success_rate(rows, mark) if metric == "asr" else robust_accuracy(rows, mark)
    return rate.hits, rate.count


def _variance(hits: Mapping[str, float], counts: Mapping[str, int]) -> float:
    """Variance of the mean of all, if images are drawn with all their targets."""
    n = sum(counts.values())
    if not n:
        return math.nan
    mean = sum(hits.values()) / n
    return sum((hits[image] - mean * counts[image]) ** 2 for image in hits) / n**2
