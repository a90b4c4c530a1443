"""A run: what the store of an evaluation holds, for tables, pictures and exports."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brusle import data as data_sets
from brusle.data import Data, as_source
from brusle.errors import BrusleError, DataError
from brusle.evaluation.record import About, GoalName, Row, Setting
from brusle.evaluation.statistics import Flag, Summary, flags
from brusle.evaluation.storing.manifest import Manifest, Originals, in_parts
from brusle.evaluation.storing.rows import rebuild
from brusle.evaluation.storing.store import Store
from brusle.evaluation.storing.traces import unpack
from brusle.ledger import COLUMNS, Ledger
from brusle.names import require_harmless
from brusle.notebooks import html_of
from brusle.problems import Problems
from brusle.results import AttackInfo, AttackResult
from brusle.scores import widened
from brusle.text import shown
from brusle.tracing import Trace
from brusle.victim import Victim

_NAMELESS = "arrays"  # data that was given as arrays


class Run:
    """An evaluation, as far as it is stored.

    `brusle.evaluate` returns one with the settings and images that were asked for, `Run.open` one
    with all that a run folder holds.

    Attributes:
        store: the results.
        folder: where they are; None if in memory.
        framed_for: the victim that photographs are framed for; None is what the store says of it.
        settings: what was run.
        manifest: images and targets that were asked for; None of an opened run.
        resumed: attacks that were stored before and not run again.
        start_queries: images that the victim was asked for to find starting images.
        seconds: wall-clock time of the last session.
        logged: where the last session logged the run to, a line for each tracker.
    """

    def __init__(
        self,
        store: Store,
        folder: Path | None = None,
        settings: Sequence[Setting] | None = None,
        wanted: Mapping[GoalName, Sequence[tuple[int, str]]] | None = None,
        originals: Originals | None = None,
        data: Data | None = None,
    ) -> None:
        """Make a run of ``store``.

        Args:
            store: the results.
            folder: where they are.
            settings: some of its settings; None is all.
            wanted: for each goal, ids of problems and names of their images, in an order; None is
                all that is stored.
            originals: the original images, if somebody has them already.
            data: where they are, if not where the run says.
        """
        self.store, self.folder = store, folder
        self.framed_for: Victim | None = None
        self.settings = list(store.settings() if settings is None else settings)
        self.manifest: Manifest | None = None
        self.resumed, self.start_queries, self.seconds = 0, 0, 0.0
        self.logged: list[str] = []
        self._wanted, self._data = wanted, data
        if originals is not None:
            self.originals = originals

    @classmethod
    def open(cls, folder: str | Path, data: Data | None = None) -> Run:
        """The run in a folder, also while it is written.

        Args:
            folder: the run folder.
            data: where the original images are, if not where the run says.
        """
        return cls(Store.read(folder), Path(folder), data=data)

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else f"in {self.folder}"
        try:
            head = f"<Run of {self.victim} on {self.images} images of {self.data}, {where}"
            return "\n  ".join(map(shown, [head, *self._lines()])) + ">"
        except BrusleError:  # closed, or no attack has begun
            return shown(f"<Run {where}, nothing to read>")

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def _lines(self) -> list[str]:
        """A line about each setting."""
        return [
            f"{setting.title}: ASR {summary.asr}, robust accuracy {summary.robust}, "
            f"{summary.cost.median:g} of {setting.queries} queries (median)"
            for setting, summary in zip(self.settings, self.summaries(), strict=True)
        ]

    @cached_property
    def about(self) -> About:
        """What the store says about victim, data, and the sessions that wrote it."""
        about = self.store.about()
        if about is None:
            run = "this run" if self.folder is None else self.folder
            raise DataError(f"{run} does not say what it is of: no attack has begun in it")
        return about

    @property
    def victim(self) -> str:
        """Name of the victim, with its defences."""
        return self.about.defended_victim

    @property
    def data(self) -> str:
        """Name of the data."""
        return self.about.data

    @property
    def images(self) -> int:
        """How many different images there are; with several targets, one has several rows."""
        if self._wanted is None:
            return len(set(self.store.images().values()))
        return len({name for pairs in self._wanted.values() for _, name in pairs})

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return self.about.shape

    @property
    def classes(self) -> list[str]:
        """Names of the classes; empty if they have none."""
        return list(self.about.names)

    @property
    def randomised(self) -> bool:
        """Whether the victim says that its answers vary."""
        return self.about.randomised

    @cached_property
    def originals(self) -> Originals:
        """The original images; what the run itself names is opened only if it is data."""
        data = self.data if self._data is None else self._data
        if data == _NAMELESS:
            raise DataError(
                "the images of this run were arrays, which a run folder does not keep: save images "
                "and labels with numpy.savez and give --data npz:FILE"
            )
        if self._data is None:
            require_harmless("the run", "data", self.data, data_sets.risk(self.data))
        victim = self.framed_for or self.about.traits.traits()
        source, known = as_source(data, victim), self.store.images()
        if self.about.labels_from == "victim":
            labels = {name: label for name, (label, _) in known.items()}
            source = source.relabelled(labels, self.about.classes)
        return Originals(source, known)

    def stored(self, setting: Setting) -> list[Row]:
        """The rows of a setting, in the order of the images."""
        rows = self.store.rows(setting.number)
        if self._wanted is None:
            return sorted(rows, key=lambda row: (row.image, row.target or 0))
        by_id = {row.problem: row for row in rows}
        pairs = [(by_id.get(i), name) for i, name in self._wanted[setting.goal]]
        return [replace(row, image=name) for row, name in pairs if row is not None]

    @cached_property
    def _summaries(self) -> list[Summary]:
        return [summarise(s, self.stored(s), self.randomised) for s in self.settings]

    def summaries(self) -> list[Summary]:
        """One summary for each setting, as `summarise` makes them."""
        return self._summaries

    @property
    def errors(self) -> int:
        """Images, over all settings, that the victim failed on or the check refused."""
        return sum(summary.errors + summary.unverified for summary in self.summaries())

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers should know, each once."""
        said = list(self.about.notes)
        known = self.store.images().values()
        if len(set(known)) < len(known):
            said.append(
                f"of {len(known)} images, {len(set(known))} are different; the others are copies, "
                f"with the same pixels and label: each image is attacked and counted once"
            )
        revisions = [session.provenance.get("git_brusle") for session in self.about.sessions]
        different = list(dict.fromkeys(str(revision) for revision in revisions))
        if len(different) > 1:
            said.append(
                f"these results come from {len(different)} revisions of brusle, {different[0]} to "
                f"{different[-1]}: if attacks have changed in between, choose another --out"
            )
        return said

    @property
    def warnings(self) -> dict[str, str]:
        """What is plainly wrong with the victim, by topic (docs/check.md)."""
        return self.about.warnings

    @property
    def preflight_queries(self) -> int:
        """Images that the victim was asked for before the attacks of the last session."""
        return self.about.sessions[-1].preflight_queries

    @cached_property
    def flags(self) -> dict[Setting, list[Flag]]:
        """Reasons to doubt the numbers of a setting, where there are any."""
        found = {}
        for setting in self.settings:
            white_box = self._white_box(setting)
            rows = [] if white_box is None else self.stored(white_box)
            found[setting] = flags(self.stored(setting), setting.queries, rows, setting.minimal)
        return {setting: reasons for setting, reasons in found.items() if reasons}

    def _white_box(self, setting: Setting) -> Setting | None:
        """A white-box attack that a black-box one should not surpass."""
        if setting.needs == "gradients":
            return None
        same = ("goal", "pixels", "seed", "eot")
        for other in self.settings:
            alike = all(getattr(other, name) == getattr(setting, name) for name in same)
            if other.needs == "gradients" and alike:
                return other
        return None

    @cached_property
    def results(self) -> list[AttackResult]:
        """One result for each setting, with all images in memory."""
        return [self.result(setting) for setting in self.settings]

    def result(self, setting: Setting) -> AttackResult:
        """The result of one setting, rebuilt from its rows."""
        return _result(setting, self.stored(setting), self.originals, self.randomised, self.notes)

    def trace(self, setting: Setting, row: Row) -> Trace | None:
        """What the search found on its way; None if that was not kept (``trace=True``)."""
        packed = self.store.trace(setting.number, row.problem)
        return None if packed is None else unpack(packed, self.shape)

    @property
    def untraced(self) -> int:
        """How many attacks were stored without a trace."""
        traced = self.store.traced()
        return sum(
            row.queries > 0 and row.problem not in traced.get(setting.number, ())
            for setting in self.settings
            for row in self.stored(setting)
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row for each image and setting, for CSV and JSON."""
        for setting in self.settings:
            for row in self.stored(setting):
                yield as_dict(setting, row)

    def adversarial(self) -> Iterator[tuple[Setting, Row, Tensor]]:
        """Every success with its image, a few images in memory at a time."""
        size = 4 * math.prod(self.shape)
        for setting in self.settings:
            hits = [row for row in self.stored(setting) if row.status == "success"]
            for part in in_parts(hits, size):
                originals = self.originals.take([row.image for row in part])
                for row, original in zip(part, originals, strict=True):
                    yield setting, row, rebuild(row, original)

    def as_dict(self) -> dict[str, Any]:
        """What the run is about, and its summaries, for JSON."""
        about = self.about.as_dict()
        sessions = about.pop("sessions")
        settings = [
            {
                **setting.model_dump(),
                "minimal": setting.minimal,
                "summary": summary.as_dict(),
                "flags": self._flag_texts(setting),
            }
            for setting, summary in zip(self.settings, self.summaries(), strict=True)
        ]
        return {
            **about,
            **sessions[-1],
            "images": self.images,
            "resumed": self.resumed,
            "start_queries": self.start_queries,
            "seconds": round(self.seconds, 2),
            "settings": settings,
        }

    def _flag_texts(self, setting: Setting) -> dict[str, str]:
        return {flag.name: flag.text for flag in self.flags.get(setting, ())}


def checkpoints(limit: int) -> tuple[int, ...]:
    """Numbers of queries, up to the limit, at which tables give the success rate."""
    marks = (10, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
    return (*[q for q in marks if q < limit][-3:], limit)


def summarise(setting: Setting, rows: Sequence[Row], randomised: bool) -> Summary:
    """The numbers of a setting.

    They hold the success rate at a few numbers of queries or, of a search for the fewest pixels,
    the pixels needed.
    """
    marks = checkpoints(setting.queries)
    return Summary.of(rows, setting.queries, marks, randomised, setting.fewest)


def as_dict(setting: Setting, row: Row) -> dict[str, Any]:
    """A row with its setting, without what differs from run to run.

    ``pixels_needed`` is that of a search for the fewest pixels; None if the image was not fooled.
    """
    needed = row.pixels if setting.minimal and row.status == "success" else None
    return {
        "attack": setting.attack,
        "goal": setting.goal,
        "pixel_budget": setting.pixels,
        "query_limit": setting.queries,
        "seed": setting.seed,
        "eot": setting.eot,
        "image": row.image,
        "id": row.problem,
        "label": row.label,
        "target": row.target,
        "clean_label": row.clean_label,
        "status": row.status,
        "stable": row.stable,
        "queries": row.queries,
        "pixels": row.pixels,
        "minimal": setting.minimal,
        "pixels_needed": needed,
        "final_label": row.final_label,
        "loss": row.loss if math.isfinite(row.loss) else None,
        "found_by": row.found_by,
        **{f"queries_{name}": getattr(row, name) for name in COLUMNS},
        "error": row.error,
    }


def _result(
    setting: Setting,
    rows: Sequence[Row],
    originals: Originals,
    randomised: bool,
    notes: Sequence[str],
) -> AttackResult:
    """The result that ``rows`` came from."""
    images = originals.take([row.image for row in rows])
    targets = None if setting.goal == "untargeted" else [row.target for row in rows]
    problems = Problems.make(
        images, [row.label for row in rows], targets, [row.problem for row in rows]
    )

    def column(name: str, kind: torch.dtype = torch.int64) -> Tensor:
        return torch.tensor([getattr(row, name) for row in rows], dtype=kind)

    return AttackResult(
        problems,
        AttackInfo(setting.attack, setting.pixels, setting.queries),
        setting.seed,
        status=[row.status for row in rows],
        images=torch.stack([rebuild(row, image) for row, image in zip(rows, images, strict=True)]),
        queries=column("queries"),
        labels=column("final_label"),
        clean_labels=column("clean_label"),
        losses=column("loss", torch.float64),
        scores=_scores(rows),
        times=column("seconds", torch.float64),
        ledger=Ledger.of(column),
        stable=column("stable", torch.bool),
        randomised=randomised,
        notes=notes,
        names=[row.image for row in rows],
        errors={i: row.error for i, row in enumerate(rows) if row.error},
        found_by=[row.found_by for row in rows],
        seconds=sum(row.seconds for row in rows),
    )


def _scores(rows: Sequence[Row]) -> Tensor:
    """``(n, classes)``; NaN where the victim has never said how many classes there are.

    Labels that were named after a row was stored are absent in it.
    """
    scores = [torch.from_numpy(np.frombuffer(row.scores).copy())[None] for row in rows]
    classes = max(mine.shape[1] for mine in scores)
    unknown = torch.full((1, classes), torch.nan, dtype=torch.float64)
    return torch.cat([widened(mine, classes) if mine.numel() else unknown for mine in scores])
