"""What a report says, as numbers: gathered once, then written as HTML, Markdown or JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from brusle.errors import InputError
from brusle.evaluation.statistics import (
    Estimate,
    Flag,
    Rate,
    Spread,
    Summary,
    by_label,
    by_target,
    cost,
    mean_needed,
    over_seeds,
    robust_accuracy,
    success_grid,
    success_rate,
    success_steps,
)
from brusle.evaluation.statistics.counting import answered, won
from brusle.evaluation.statistics.rates import or_none
from brusle.evaluation.storing.runs import Run, summarise
from brusle.evaluation.storing.store import Record, Row
from brusle.outcomes import ATTACKED, FAULTY
from brusle.report.comparison import Section, within

MEANINGS = {
    "not-converged": "The query limit is too low to call the remaining images robust.",
    "randomised": "The answers of the victim vary, and first hits are lucky draws: read the stable "
    "rate.",
    "black-box-beats-white-box": "Gradients are masked, or the white-box attack is weak: do not "
    "take the white-box number for the robustness of the victim.",
    "errors": "Read the reasons below before you trust the rates.",
}
_MARKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
SHARES: dict[str, Callable[[Sequence[Row], Record], float]] = {
    "ASR": lambda rows, setting: success_rate(rows, setting.queries).value,
    "robust accuracy": lambda rows, setting: robust_accuracy(rows, setting.queries).value,
}
_EFFORT: dict[str, Callable[[Sequence[Row], Record], float]] = {
    "mean queries": lambda rows, setting: cost(rows, setting.queries).mean,
}
_FEWEST: dict[str, Callable[[Sequence[Row], Record], float]] = {
    "mean pixels needed": lambda rows, setting: mean_needed(rows, setting.pixels),
}


@dataclass(frozen=True)
class Part:
    """One setting.

    Attributes:
        setting: what was run.
        summary: its numbers.
        flags: reasons to doubt them.
        steps: success rate over queries, see `success_steps`; of a search for the fewest pixels
            robust accuracy over pixels, see `PixelsNeeded`.
        grid: success rate within some numbers of queries; empty of a search for the fewest pixels.
        by_label: a summary of each true class.
        by_target: a summary of each target class.
        moves: success rate from true class to target.
        pixels: how many successes changed so many pixels.
        troubles: how many rows have this status and reason, "error" or "unverified".
    """

    setting: Record
    summary: Summary
    flags: list[Flag]
    steps: dict[int, Rate]
    grid: dict[int, Rate]
    by_label: dict[int, Summary]
    by_target: dict[int, Summary]
    moves: dict[tuple[int, int], Rate]
    pixels: dict[int, int]
    troubles: dict[tuple[str, str], int]

    @classmethod
    def of(cls, setting: Record, rows: Sequence[Row], flags: list[Flag], randomised: bool) -> Part:
        """Count everything that a report says about ``rows``."""
        limit, summary = setting.queries, summarise(setting, rows, randomised)
        grid = success_grid({setting.pixels: rows}, [] if setting.minimal else marks_to(limit))
        return cls(
            setting=setting,
            summary=summary,
            flags=flags,
            steps=summary.needed.robust if summary.needed else success_steps(rows, limit),
            grid={queries: rate for (queries, _), rate in grid.items()},
            by_label=by_label(rows, limit, setting.fewest),
            by_target=by_target(rows, limit, setting.fewest),
            moves=_moves(rows, limit),
            pixels=_count(row.pixels for row in rows if won(row)),
            troubles=_count((row.status, row.error) for row in rows if row.status in FAULTY),
        )

    @property
    def finished(self) -> bool:
        """Whether all that was asked for is stored."""
        return self.summary.images >= self.setting.problems

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **vars(self.setting),
            "minimal": self.setting.minimal,
            "stored": self.summary.images,
            "finished": self.finished,
            "summary": self.summary.as_dict(),
            "flags": {flag.name: flag.text for flag in self.flags},
            "asr_within": {str(q): rate.as_dict() for q, rate in self.grid.items()},
            "by_label": {str(c): summary.as_dict() for c, summary in self.by_label.items()},
            "by_target": {str(c): summary.as_dict() for c, summary in self.by_target.items()},
            "from_to": [
                {"label": a, "target": b, **rate.as_dict()} for (a, b), rate in self.moves.items()
            ],
            "pixels_of_successes": {str(n): count for n, count in self.pixels.items()},
            "troubles": [
                {"status": status, "reason": reason, "count": count}
                for (status, reason), count in self.troubles.items()
            ],
        }


@dataclass(frozen=True)
class Group:
    """Settings that differ in their seed alone.

    Attributes:
        parts: the settings.
        limited: whether others differ from them in the query limit alone.
    """

    parts: tuple[Part, ...]
    limited: bool = False

    @property
    def setting(self) -> Record:
        """The first of them."""
        return self.parts[0].setting

    @property
    def name(self) -> str:
        """The attack, without a seed."""
        return self.setting.attack + self._eot

    @property
    def budget(self) -> str:
        """Pixels, and queries where they matter."""
        limit = f", {self.setting.queries} queries" if self.limited else ""
        return f"{self.setting.pixels} px{limit}"

    @property
    def title(self) -> str:
        """Attack, goal and budget, without a seed."""
        return f"{self.setting.attack} {self.setting.goal}, {self.budget}{self._eot}"

    @property
    def minimal(self) -> bool:
        """Whether these are searches for the fewest pixels."""
        return self.setting.minimal

    @property
    def _eot(self) -> str:
        return f", eot {self.setting.eot}" if self.setting.eot > 1 else ""

    @property
    def asr(self) -> Rate:
        """Success rate, all seeds together."""
        return pooled(part.summary.asr for part in self.parts)


@dataclass(frozen=True)
class Seeds:
    """A metric of a group over its seeds.

    Attributes:
        group: the settings.
        metric: what varies.
        spread: how much; None if the seeds cannot be compared.
        problem: why not.
    """

    group: Group
    metric: str
    spread: Spread | None
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        spread = (
            None if self.spread is None else {k: or_none(v) for k, v in vars(self.spread).items()}
        )
        return {
            "setting": self.group.title,
            "queries": self.group.setting.queries,
            "metric": self.metric,
            "spread": spread,
            "problem": self.problem or None,
        }


@dataclass(frozen=True)
class Content:
    """All that a report says.

    Attributes:
        name: of the run.
        about: what the store says about victim, data and sessions.
        images: how many images there are.
        clean: images that the victim classifies correctly before any attack.
        parts: the settings.
        seeds: what varies with the seed.
        comparison: attacks against the first; None if there is one.
        writing: whether a run writes to the folder at this moment.
    """

    name: str
    about: dict[str, Any]
    images: int
    clean: Rate
    parts: list[Part]
    seeds: list[Seeds]
    comparison: Section | None
    writing: bool

    @property
    def victim(self) -> str:
        """Name of the victim."""
        return str(self.about.get("victim", "unknown victim"))

    @property
    def data(self) -> str:
        """Name of the data."""
        return str(self.about.get("data", "unknown data"))

    @property
    def randomised(self) -> bool:
        """Whether the victim says that its answers vary."""
        return bool(self.about.get("randomised"))

    @property
    def warnings(self) -> dict[str, str]:
        """What is plainly wrong with the victim, by topic."""
        return dict(self.about.get("warnings", {}))

    @property
    def unfinished(self) -> list[Part]:
        """Settings that are not complete."""
        return [part for part in self.parts if not part.finished]

    @property
    def groups(self) -> list[Group]:
        """Settings that differ in their seed alone, together."""
        return group(self.parts)

    @property
    def state(self) -> str:
        """What to say if more results are to come; else empty."""
        if not self.writing and not self.unfinished:
            return ""
        stored = sum(part.summary.images for part in self.parts)
        asked = sum(max(part.setting.problems, part.summary.images) for part in self.parts)
        doing = "A run is writing at this moment" if self.writing else "The run is unfinished"
        return (
            f"{doing}: {stored} of {asked} attacks are stored, and {len(self.unfinished)} of "
            f"{len(self.parts)} settings are incomplete. Successes end earlier than failures, so "
            f"an unfinished success rate is too high."
        )

    def headline(self) -> list[str]:
        """The result in a few sentences."""
        names = list(dict.fromkeys(part.setting.attack for part in self.parts))
        limits = span(part.setting.queries for part in self.parts)
        pixels = span(part.setting.pixels for part in self.parts)
        said = [
            f"{self.victim} was attacked on {self.images} images of {self.data} by "
            f"{listed(names)}. An attack may change {pixels} pixels of an image and ask the victim "
            f"{limits} times.",
            f"Before any attack, the victim classifies {in_words(self.clean, 'images')} correctly.",
        ]
        said += [self._result(best) for best in self.strongest()]
        return said + [self._needed(best) for best in self.sparsest()]

    def strongest(self) -> list[Group]:
        """For each goal the settings with the highest success rate."""
        return self._best(minimal=False, key=lambda group: group.asr.value)

    def sparsest(self) -> list[Group]:
        """For each goal the search that does with the fewest pixels, in the median."""
        return self._best(minimal=True, key=lambda group: -_median(group))

    def _best(self, minimal: bool, key: Callable[[Group], float]) -> list[Group]:
        groups = [g for g in self.groups if g.minimal is minimal and g.asr.count]
        goals = dict.fromkeys(part.setting.goal for part in self.parts)
        ranked = [[g for g in groups if g.setting.goal == goal] for goal in goals]
        return [max(some, key=key) for some in ranked if some]

    def _result(self, best: Group) -> str:
        part = best.parts[0]
        setting, summary = part.setting, part.summary
        attack = f"{setting.attack} with {setting.pixels} pixels"
        if len(best.parts) > 1:
            attack += f" (here with seed {setting.seed})"
        if setting.goal == "targeted":
            won = in_words(summary.asr, "attacked pairs of image and target")
            return f"Targeted, {attack} was the strongest: it reached the target in {won}."
        won, left = in_words(summary.asr, "attacked images"), in_words(summary.robust, "images")
        return (
            f"Untargeted, {attack} was the strongest: it fooled the victim on {won}. To the end, "
            f"{left} are classified correctly."
        )

    def _needed(self, best: Group) -> str:
        setting, summary = best.setting, best.parts[0].summary
        assert summary.needed is not None
        seed = f" (here with seed {setting.seed})" if len(best.parts) > 1 else ""
        needed, limit = summary.needed, setting.pixels
        quartiles = (needed.lower.value, needed.median.value, needed.upper.value)
        ends = (needed.median.low, needed.median.high)
        lower, median, upper, low, high = (
            pixels(x, limit).replace(">", "more than") for x in (*quartiles, *ends)
        )
        what = "images" if setting.goal == "untargeted" else "pairs of image and target"
        return (
            f"{setting.goal.capitalize()}, {setting.attack}{seed} looked for the fewest pixels: "
            f"half of the {summary.attacked} attacked {what} need {median} (95 % interval {low} to "
            f"{high}), a quarter {lower}, three quarters {upper}; "
            f"{in_words(summary.asr, what)} need at most {limit}."
        )

    def flags(self) -> dict[str, list[tuple[Record, Flag]]]:
        """Reasons to doubt the numbers, by name."""
        found: dict[str, list[tuple[Record, Flag]]] = {}
        for part in self.parts:
            for flag in part.flags:
                found.setdefault(flag.name, []).append((part.setting, flag))
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "run": self.name,
            **self.about,
            "images": self.images,
            "writing": self.writing,
            "unfinished": len(self.unfinished),
            "headline": self.headline(),
            "clean_accuracy": self.clean.as_dict(),
            "settings": [part.as_dict() for part in self.parts],
            "over_seeds": [seeds.as_dict() for seeds in self.seeds],
            "comparison": None if self.comparison is None else self.comparison.as_dict(),
        }


def gather(run: Run, writing: bool = False) -> Content:
    """Read a run; one setting is in memory at a time, or those that are compared.

    Args:
        run: the run.
        writing: whether it is being written.
    """
    if not run.settings:
        raise InputError(f"no attack has begun in {run.folder}: there is nothing to report yet")
    randomised = bool(run.about.get("randomised"))
    parts: list[Part] = []
    right: dict[str, bool] = {}
    for setting in run.settings:
        rows = run.stored(setting)
        right.update({row.image: row.status in ATTACKED for row in answered(rows)})
        parts.append(Part.of(setting, rows, run.flags.get(setting, []), randomised))
    return Content(
        name="" if run.folder is None else run.folder.resolve().name,
        about=run.about,
        images=run.images,
        clean=Rate(sum(right.values()), len(right)),
        parts=parts,
        seeds=[line for g in group(parts) if len(g.parts) > 1 for line in _seeds(run, g)],
        comparison=within(run),
        writing=writing,
    )


def group(parts: Iterable[Part]) -> list[Group]:
    """Put together what differs in the seed alone."""
    groups: dict[tuple[object, ...], dict[int, list[Part]]] = {}
    for part in parts:
        s = part.setting
        limits = groups.setdefault((s.attack, s.goal, s.pixels, s.eot, s.minimal), {})
        limits.setdefault(s.queries, []).append(part)
    return [
        Group(tuple(some), len(limits) > 1)
        for limits in groups.values()
        for some in limits.values()
    ]


def marks_to(limit: int) -> list[int]:
    """Round numbers, up to the limit, at which grids give rates."""
    return [*(mark for mark in _MARKS if mark < limit), limit]


def pixels(number: float, limit: int) -> str:
    """Pixels needed: ``3``, ``> 40``, or ``-`` if nothing was attacked."""
    if math.isnan(number):
        return "-"
    return f"> {limit}" if number > limit else f"{number:.0f}"


def pixels_within(needed: Estimate, limit: int) -> str:
    """The same with its interval: ``3 [2, > 40]``."""
    value, low, high = (pixels(x, limit) for x in (needed.value, needed.low, needed.high))
    return value if value == "-" else f"{value} [{low}, {high}]"


def _median(group: Group) -> float:
    """Mean over seeds of the median of pixels needed."""
    medians = [p.summary.needed.median.value for p in group.parts if p.summary.needed]
    return sum(medians) / len(medians)


def pooled(rates: Iterable[Rate]) -> Rate:
    """All together; of several seeds on the same problems the value is their mean.

    The interval is not to be shown: seeds are not independent images.
    """
    rates = list(rates)
    return Rate(sum(rate.hits for rate in rates), sum(rate.count for rate in rates))


def rounded(rate: Rate) -> str:
    """A share in percent; not quite all is not 100."""
    whole = f"{100 * rate.value:.0f}"
    return (
        f"{100 * rate.value:.1f}" if whole in ("0", "100") and rate.value not in (0, 1) else whole
    )


def in_words(rate: Rate, what: str) -> str:
    """``12 of 53 images (23 %, 95 % interval 13 to 36 %)``."""
    if not rate.count:
        return f"none of 0 {what}"
    low, high = (f"{100 * end:.0f}" for end in rate.interval)
    share = f"{rounded(rate)} %, 95 % interval {low} to {high} %"
    return f"{rate.hits} of {rate.count} {what} ({share})"


def listed(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def span(numbers: Iterable[int]) -> str:
    """``5``, or ``2 to 20``."""
    numbers = sorted(set(numbers))
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _seeds(run: Run, group: Group) -> list[Seeds]:
    rows = [run.stored(part.setting) for part in group.parts]
    setting, lines = group.setting, []
    for name, metric in (SHARES | (_FEWEST if group.minimal else _EFFORT)).items():
        try:
            spread = over_seeds(rows, lambda some, metric=metric: metric(some, setting))  # type: ignore[misc]
            lines.append(Seeds(group, name, spread))
        except InputError as error:  # unfinished: the other groups still stand
            return [Seeds(group, name, None, str(error))]
    return lines


def _moves(rows: Iterable[Row], limit: int) -> dict[tuple[int, int], Rate]:
    groups: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        if row.target is not None:
            groups.setdefault((row.label, row.target), []).append(row)
    return {move: success_rate(groups[move], limit) for move in sorted(groups)}


def _count(things: Iterable[Any]) -> dict[Any, int]:
    return dict(sorted(Counter(things).items()))
