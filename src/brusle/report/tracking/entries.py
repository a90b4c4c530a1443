"""What a tracker is told of a run, gathered from its store and the same for all trackers."""

from __future__ import annotations

import calendar
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from brusle.errors import BrusleError, InputError
from brusle.evaluation.record import Row, Setting
from brusle.evaluation.statistics import Rate, success_steps
from brusle.evaluation.statistics.counting import robust_accuracy
from brusle.evaluation.storing.digest import rows_digest
from brusle.evaluation.storing.export import save_csv
from brusle.evaluation.storing.runs import Run
from brusle.files import write_text
from brusle.report.content import Content, gather
from brusle.report.curve_sheet import write_curves
from brusle.report.gallery import run_examples, write_gallery
from brusle.report.markdown import report_markdown
from brusle.report.tracking.keys import prefixes
from brusle.text import shortened, shown

_LONGEST = 500  # letters of a parameter, which is what old trackers take
_MOST_POINTS = 500  # of a curve; the step at the limit and that at 0 are always among them
_PICTURES, _PER_SETTING = 12, 2
_BEGAN = "%Y-%m-%dT%H:%M:%SZ"

Series = list[tuple[int, float]]


@dataclass(frozen=True)
class Entries:
    """What is written.

    Attributes:
        run: tells the run from all others, also when it is logged again with more rows.
        version: tells what is stored of it now from what was stored before.
        name: what people call it.
        began: when, in seconds since 1970.
        finished: whether all is stored that was asked for.
        parameters: what was asked for, of what, with which versions.
        metrics: single numbers.
        series: numbers over queries (or pixels, as their keys say): steps and values.
        pictures: PNG files by their names.
        files: other files.
        missing: why there is no picture of the examples; empty if there is, or nothing was fooled.
    """

    run: str
    version: str
    name: str
    began: int
    finished: bool
    parameters: dict[str, str]
    metrics: dict[str, float]
    series: dict[str, Series]
    pictures: dict[str, Path]
    files: dict[str, Path]
    missing: str = ""

    @property
    def scalars(self) -> dict[str, float]:
        """All numbers as single ones: of a series the last."""
        return {key: points[-1][1] for key, points in self.series.items()} | self.metrics


@contextmanager
def entries_of(run: Run) -> Iterator[Entries]:
    """What is stored of ``run`` now; files are gone afterwards."""
    if not any(run.store.counts().values()):
        raise InputError(f"no attack is stored in {run.folder or 'the run'} yet: nothing to log")
    content = gather(run)
    with TemporaryDirectory(prefix="brusle-") as place:
        pictures, missing = _pictures(run, Path(place))
        yield Entries(
            run=_identity(run),
            version=rows_digest(run),
            name=content.name or shown(run.victim),
            began=calendar.timegm(time.strptime(run.about.sessions[0].began, _BEGAN)),
            finished=not content.unfinished,
            parameters=_parameters(run, content),
            metrics=_metrics(content),
            series=_series(run),
            pictures=pictures,
            files=_files(run, content, Path(place)),
            missing=missing,
        )


def _identity(run: Run) -> str:
    """The same for all that later sessions add to a run, wherever its folder is moved to."""
    first = run.about.sessions[0]
    facts = (first.began, first.plan, first.pairs, run.about.weights, run.about.data)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _parameters(run: Run, content: Content) -> dict[str, str]:
    about, last = run.about, run.about.sessions[-1]
    values: dict[str, Any] = {
        "victim": about.defended_victim,
        "weights": about.weights or "unknown",
        "data": about.data,
        "images": content.images,
        "shape": "x".join(map(str, about.shape)),
        "pairs": last.pairs,
        "randomised": about.randomised,
        "sessions": len(about.sessions),
        "rows_sha256": rows_digest(run),
    }
    values |= {f"software/{name}": value for name, value in last.provenance.items()}
    for setting in run.settings:
        facts = {
            "attack": setting.attack,
            "goal": setting.goal,
            "pixels": setting.pixels,
            "queries": setting.queries,
            "seed": setting.seed,
            "options": json.dumps(setting.options, sort_keys=True),
        }
        prefix = prefixes(run.settings)[setting.number]
        values |= {f"{prefix}/{name}": value for name, value in facts.items()}
    return {name: shortened(shown(value), _LONGEST) for name, value in values.items()}


def _metrics(content: Content) -> dict[str, float]:
    found = _flat("clean_accuracy", content.clean.as_dict())
    begins = prefixes([report.setting for report in content.settings])
    for report in content.settings:
        numbers = report.summary.as_dict()
        del numbers["asr_at"]  # the series have all steps
        if numbers["pixels_needed"] is not None:
            del numbers["pixels_needed"]["robust_accuracy_within"]
        else:
            del numbers["asr"], numbers["robust_accuracy"]
        for name, value in numbers.items():
            found |= _flat(f"{begins[report.setting.number]}/{name}", value)
    return found


def _flat(key: str, value: Any) -> dict[str, float]:
    """Numbers by name; a rate or an estimate has its interval beside it."""
    if isinstance(value, Mapping):
        parts = {name: part for name, part in value.items() if name not in ("hits", "count")}
        named = {key if name == "value" else f"{key}_{name}": part for name, part in parts.items()}
        return {name: x for inner, part in named.items() for name, x in _flat(inner, part).items()}
    return {} if value is None or not math.isfinite(value) else {key: float(value)}


def _series(run: Run) -> dict[str, Series]:
    found: dict[str, Series] = {}
    begins = prefixes(run.settings)
    for setting in run.settings:
        rows = run.stored(setting)
        for name, rates in _curves(setting, rows).items():
            key = f"{begins[setting.number]}/{name}"
            known = {step: rate for step, rate in rates.items() if rate.count}
            if known:
                found[key] = [(step, rate.value) for step, rate in known.items()]
                for place, end in enumerate(("low", "high")):
                    points = [(step, rate.interval[place]) for step, rate in known.items()]
                    found[f"{key}_{end}"] = points
    return found


def _curves(setting: Setting, rows: Sequence[Row]) -> dict[str, dict[int, Rate]]:
    """Rates over queries; of a search for the fewest pixels over pixels."""
    if setting.minimal:
        steps = range(setting.pixels + 1)
        rates = {step: robust_accuracy(rows, pixels=step) for step in _thinned(steps)}
        return {"robust_accuracy_by_pixels": rates}
    asr = success_steps(rows, setting.queries)
    # a success that the check refused ends what was robust, and no success begins
    falls = {row.queries for row in rows if row.status == "unverified"}
    robust = _thinned(sorted({*asr, *falls}))
    return {
        "asr": {step: asr[step] for step in _thinned(list(asr))},
        "robust_accuracy": {step: robust_accuracy(rows, step) for step in robust},
    }


def _thinned(steps: Sequence[int]) -> list[int]:
    """Some of many steps, evenly, with the first and the last."""
    count = min(len(steps), _MOST_POINTS)
    last = len(steps) - 1
    return [steps[last * i // max(1, count - 1)] for i in range(count)]


def _pictures(run: Run, place: Path) -> tuple[dict[str, Path], str]:
    """Curves, and examples where the originals can be read; and why they cannot."""
    curve, gallery = place / "curve.png", place / "gallery.png"
    write_curves(run, curve)
    try:
        examples = run_examples(run, _PER_SETTING)[:_PICTURES]
    except (BrusleError, OSError) as error:
        return {"curve": curve}, str(error)
    if not examples:
        return {"curve": curve}, ""
    write_gallery(examples, gallery, f"{run.victim} on {run.data}")
    return {"curve": curve, "gallery": gallery}, ""


def _files(run: Run, content: Content, place: Path) -> dict[str, Path]:
    writers: dict[str, Callable[[Path], None]] = {
        "rows.csv": lambda path: save_csv(run.rows(), path),
        "run.json": lambda path: write_text(path, json.dumps(content.as_dict(), indent=2) + "\n"),
        "report.md": lambda path: write_text(path, report_markdown(content)),
    }
    for name, write in writers.items():
        write(place / name)
    return {name: place / name for name in writers}
