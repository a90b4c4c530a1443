"""Run a preset and put its numbers beside the paper's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brusle.evaluation.paper.cells import Cell, cells
from brusle.evaluation.paper.claims import CheckedClaim, check_claims
from brusle.evaluation.paper.jobs import Job, default_folder, jobs
from brusle.evaluation.paper.photographs import Album
from brusle.evaluation.paper.presets import Part, Preset, preset
from brusle.evaluation.paper.rows import PartRows
from brusle.evaluation.running.journalling import continuing
from brusle.evaluation.running.listed_targets import Listed, choose_listed
from brusle.evaluation.running.pairs import choose
from brusle.evaluation.running.plan import Plan
from brusle.evaluation.running.runner import run_plan
from brusle.evaluation.statistics.rates import Rate
from brusle.evaluation.storing.manifest import Manifest, Targets
from brusle.files import write_text
from brusle.search import Attack
from brusle.terms import Terms
from brusle.version import __version__
from brusle.victim import Victim

FILE = "reproduction.json"


@dataclass(frozen=True)
class Outcome:
    """A part that was run.

    Attributes:
        job: what was run.
        images: how many images, all classified correctly; of a service, all in its own words.
        whole: the part as the paper has it.
        pairs: how many attacks that is for each line of the table.
        digest: of the images and targets.
        cells: the numbers.
        claims: what becomes of the claims of the paper's text.
        errors: results that cannot be counted.
        resumed: attacks that were stored before and not run again.
        album: the photographs, of a part that is about single ones and has no cells; else None.
    """

    job: Job
    images: int
    whole: Part
    pairs: int
    digest: str
    cells: tuple[Cell, ...]
    claims: tuple[CheckedClaim, ...]
    errors: int
    resumed: int
    album: Album | None = None

    @property
    def agreement(self) -> Rate:
        """In how many places of the table the paper's strongest line is ours as well."""
        sign = 1 if self.job.part.metric == "asr" else -1
        places: dict[tuple[int, int], list[Cell]] = {}
        for cell in self.cells:
            if cell.paper is not None and cell.low is not None:
                places.setdefault((cell.pixels, cell.queries), []).append(cell)
        agreed = several = 0
        for rivals in places.values():
            most = max(sign * cell.ours for cell in rivals)
            strongest = max(rivals, key=lambda cell: sign * (cell.paper or 0.0))
            several += len(rivals) > 1
            agreed += len(rivals) > 1 and sign * strongest.ours == most
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
            "claims": [claim.as_dict() for claim in self.claims],
            **({} if self.album is None else self.album.as_dict()),
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
            "brusle": __version__,
            "seconds": round(self.seconds, 2),
            "left_out": list(self.left_out),
            "parts": [outcome.as_dict() for outcome in self.outcomes],
        }


def reproduce(
    name: str | Preset,
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
    terms: Terms | None = None,
    on_part: Callable[[Job], None] | None = None,
    **options: Any,
) -> Reproduction:
    """Run a preset and compare its numbers with the paper's.

    Args:
        name: a preset, which is called like its table in the paper, or one of your own.
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
        terms: on which terms a service is asked.
        on_part: called before each part.
        **options: further arguments of `brusle.evaluate`, such as ``batch_size``.
    """
    began = time.monotonic()
    wanted = preset(name) if isinstance(name, str) else name
    scale = {"limit": limit, "queries": queries, "pixels": pixels, "seed": seed, "targets": targets}
    todo, left_out = jobs(wanted, victim, part, data, **scale)
    with ExitStack() as stack:
        opened = [job.opened(device, options.get("timeout"), terms) for job in todo]
        models = [stack.enter_context(one) for one in opened]
        folder = default_folder(wanted, todo, models) if out is None else Path(out)
        outcomes = []
        for job, model in zip(todo, models, strict=True):
            if on_part is not None:
                on_part(job)
            how = options | {"device": device, "terms": terms}
            outcomes.append(_run(wanted, job, model, folder / job.part.name, how))
    done = Reproduction(wanted, tuple(outcomes), left_out, folder, time.monotonic() - began)
    write_text(folder / FILE, json.dumps(done.as_dict(), indent=2) + "\n")
    return done


def _run(wanted: Preset, job: Job, model: Victim, folder: Path, options: dict[str, Any]) -> Outcome:
    """Choose images and targets for a part, attack them, and read the table from the rows."""
    part = job.part
    attacks = [a for plan in job.plans for a in plan.attacks_on(model)[part.goal]]
    listed = None if part.service is None else _listed(job, model, folder, options)
    manifest = _chosen(job, model, attacks, options) if listed is None else listed.manifest
    # the numbers of a service's labels are those of the victim that was asked for them
    plan = _plan(job, job.victim if listed is None else model, manifest, attacks)
    run = run_plan(plan, folder, **options)
    rows, (_, height, width) = PartRows.of(part, run), run.shape
    return Outcome(
        job,
        images=len(manifest.entries),
        whole=wanted.part(part.name),
        pairs=manifest.pairs if part.goal == "targeted" else len(manifest.entries),
        digest=manifest.digest,
        cells=tuple(cells(wanted, rows, height * width)) if listed is None else (),
        claims=tuple(check_claims(rows)),
        errors=run.errors,
        resumed=run.resumed,
        album=None if listed is None else Album.of(wanted, rows, run, listed),
    )


def _chosen(
    job: Job, model: Victim, attacks: Sequence[Attack], options: dict[str, Any]
) -> Manifest:
    """Images that the victim classifies correctly, with random targets."""
    part = job.part
    return choose(
        job.data,
        model,
        images=part.images,
        targets=part.targets if part.goal == "targeted" else 0,
        seed=part.seeds[0],
        batch_size=options.get("batch_size"),
        with_starts=any(attack.wants_start(part.goal == "targeted") for attack in attacks),
    )


def _listed(job: Job, model: Victim, folder: Path, options: dict[str, Any]) -> Listed:
    """Photographs with labels and targets in the service's words, which the journal keeps."""
    with continuing(model, folder) as asked:
        return choose_listed(
            job.data,
            asked,
            images=job.part.images,
            targets=job.part.targets,
            seed=job.part.seeds[0],
            batch_size=options.get("batch_size"),
        )


def _plan(job: Job, victim: Any, manifest: Manifest, attacks: Sequence[Attack]) -> Plan:
    """All plans of a job as one, with the images that were chosen."""
    values = {
        "victim": victim,
        "defences": job.part.defences,
        "data": job.data,
        "pairs": manifest,
        "goals": job.part.goal,
        "attacks": attacks,
        "seeds": job.part.seeds,
    }
    return Plan.of(values, job.part.name)
